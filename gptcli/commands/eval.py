"""gptcli eval: the loss of a run on a whole split."""

import json
import math
import sys

from gptcli.errors import RunError
from gptcli.terminal import printable, table

SUMMARY = """Measure a run's model on a whole split of its corpus: loss with its standard error, bits per character,
perplexity, and the loss by position in the context.

RUN is a run directory, a checkpoint in it, or latest. Windows of block_size characters cover the split without
overlap; the standard error takes each window's mean as one observation."""
EXAMPLES = """examples:
  gptcli eval latest
  gptcli eval latest --split train --json
  gptcli eval outputs/RUN --data-path other.txt"""

_WINDOWS_AT_ONCE = 256  # of 8 symbols; fewer where they are longer


def add_arguments(parser):
    """Declares what the command takes."""
    parser.add_argument("run", metavar="RUN", help="run directory, checkpoint, or latest")
    parser.add_argument("--split", choices=("validation", "train"), default="validation", help="default validation")
    parser.add_argument("--data-path", metavar="FILE", help="another UTF-8 text to measure on, as a whole")
    parser.add_argument("--best", action="store_true", help="the best checkpoint instead of the newest")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments):
    """Measures and prints; returns the exit status."""
    import dataclasses

    from gptcli.runs import resolve_run
    from gptcli.training.loading import load_model

    reference = resolve_run(arguments.run)
    if arguments.best and reference.checkpoint_name is None:
        reference = dataclasses.replace(reference, checkpoint_name="best")
    loaded = load_model(reference)
    for note in loaded.notes:
        print(f"note: {printable(note)}", file=sys.stderr)
    corpus_name, tokens, floor = _tokens(loaded, arguments)
    facts = _measure(loaded, tokens, floor, corpus_name, arguments)
    print(json.dumps(facts, indent=2, ensure_ascii=False) if arguments.json else _as_text(facts))
    return 0


def _tokens(loaded, arguments):
    """Returns the corpus's name, the symbols to measure on, and the corpus's floor when known."""
    from gptcli.training.loading import load_corpus_of

    if arguments.data_path:
        from gptcli.data.text import read_text

        text = read_text(arguments.data_path).text
        return arguments.data_path, loaded.tokenizer.encode(text, hint="the model's vocabulary lacks it"), None
    corpus = load_corpus_of(loaded)
    return corpus.name, getattr(corpus, arguments.split), corpus.floor


def _measure(loaded, tokens, floor, corpus_name, arguments):
    import torch
    from torch.nn import functional as F

    from gptcli.data.windows import check_length
    from gptcli.training.evaluation import split_loss
    from gptcli.training.threads import threads_without_gradients

    model, block_size = loaded.model, loaded.config.model.block_size
    check_length("text" if arguments.data_path else arguments.split, len(tokens), block_size)

    torch.set_num_threads(threads_without_gradients(model.parameter_count(), _WINDOWS_AT_ONCE * 8))

    @torch.inference_mode()
    def window_losses(x, y):
        logits = model(x)
        return F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="none").view(y.shape)

    result = split_loss(window_losses, tokens, block_size, windows_at_once=_WINDOWS_AT_ONCE)
    if not math.isfinite(result.loss):
        raise RunError(f"the model's loss is not finite: {result.loss}; its weights are of no use")
    facts = {
        "step": loaded.step,
        "corpus": corpus_name,
        "split": None if arguments.data_path else arguments.split,
        "characters": result.symbols,
        "loss": result.loss,
        # A single window has no standard error, and JSON no word for what is not a number.
        "standard_error": result.standard_error if math.isfinite(result.standard_error) else None,
        "bits_per_character": result.bits_per_character,
        "perplexity": result.perplexity if math.isfinite(result.perplexity) else None,
        "loss_by_position": result.by_position,
    }
    if floor is not None:
        best = floor(loaded.config.model.context_length)
        facts |= {"floor": best, "above_floor": result.loss - best}
    return facts


def _as_text(facts):
    error = "" if facts["standard_error"] is None else f" ± {facts['standard_error']:.4f}"
    rows = [
        ("loss", f"{facts['loss']:.4f}{error} nats a character"),
        ("bits per character", f"{facts['bits_per_character']:.4f}"),
        ("perplexity", "beyond all numbers" if facts["perplexity"] is None else f"{facts['perplexity']:.3f}"),
    ]
    if "floor" in facts:
        rows.append(("best possible", f"{facts['floor']:.4f}; the model is {facts['above_floor']:+.4f} from it"))
    where = f"{facts['corpus']}{', ' + facts['split'] if facts['split'] else ''}"
    head = f"step {facts['step']}   {printable(where)}, {facts['characters']:,} characters"
    positions = facts["loss_by_position"]
    shown = [index for index in range(len(positions)) if (index + 1) & index == 0 or index == len(positions) - 1]
    course = "  ".join(f"{index + 1}: {positions[index]:.3f}" for index in shown)
    return "\n".join([head, *table(rows), f"by characters seen  {course}"])

"""Everything that inspect measures on a run, as plain data that table, figures and JSON show alike."""

import math

import torch

from gptcli.analysis.ablation import ablate, parts_of
from gptcli.analysis.attention_maps import attention_weights, measure_heads
from gptcli.analysis.depth_lens import losses_by_depth
from gptcli.analysis.residual_stream import dead_units, stream_scales
from gptcli.data.windows import check_length, evenly_spaced_starts, gather
from gptcli.errors import UserError
from gptcli.training.diagnostics import diagnose, diagnostic_batch
from gptcli.training.workplace import build_model

# Each part of a model costs up to one pass over the windows, so a larger model gets fewer of them: about half
# a minute of multiplications on one core.
_MOST_TOKENS, _LEAST_TOKENS = 32_768, 4_096
_MULTIPLICATIONS = 3e11
_TEXT_LENGTH = 48  # characters that a heat map can label legibly


def inspect(loaded, corpus, records, *, text=None, split="validation", windows=None):
    """Returns what there is to know about a LoadedModel, JSON-ready.

    Args:
        corpus: the Corpus that it was trained on.
        records: the run's records of metrics.jsonl, for what was logged of gradients while it trained.
        text: what the attention maps show (default: the start of a paragraph of the split).
        split: "train" or "validation", to draw windows from.
        windows: how many, spread evenly (default: as many as take about a minute or less).
    Raises:
        UserError: the split is too short, or the vocabulary lacks a character of the text.
    """
    model, block_size = loaded.model, loaded.config.model.block_size
    tokens = getattr(corpus, split)
    check_length(split, len(tokens), block_size)
    shown = _shown_text(text, tokens, loaded.tokenizer, block_size, split)
    symbols = windows * block_size if windows else _default_symbols(model)
    x, y = gather(tokens, evenly_spaced_starts(len(tokens), block_size, symbols), block_size)
    by_depth, by_position = losses_by_depth(model, x, y)
    facts = {
        **_identity(loaded),
        "corpus": corpus.name,
        "split": split,
        "windows": len(x),
        "characters": x.numel(),
        "loss": by_depth[-1]["loss"],
        "standard_error": by_depth[-1]["standard_error"],
        "guessing": math.log(loaded.tokenizer.vocabulary_size),
        "notes": notes_on(loaded.config.model),
        "attention": _attention(loaded, x, shown),
        "ablation": ablate(model, x, y),
        **_compared_with_initial(loaded, corpus, x, records),
        "loss_by_depth": by_depth,
        "loss_by_position": by_position,
    }
    return _strict(facts)


def _identity(loaded):
    stage = loaded.config.stage
    return {
        "stage": stage.name,
        "title": stage.title,
        "step": loaded.step,
        "seed": loaded.config.seed,
        "parameters": loaded.model.parameter_count(),
        "block_size": loaded.config.model.block_size,
        "num_layers": loaded.config.model.num_layers,
        "num_heads": loaded.config.model.num_heads,
    }


def notes_on(config):
    """Returns what does not apply to a model of these settings, or must be known to read its numbers."""
    if config.num_layers == 0:
        notes = ["no blocks: no attention, nothing to silence, and the only depth is that of the embeddings"]
    else:
        notes = []
        if config.attention == "none":
            notes.append("no attention: no maps and no heads")
        if config.feed_forward == "none":
            notes.append("no feed-forward layer: no ReLU units")
        if not config.residual:
            notes.append(
                "no residual connections: the stream is the last sub-layer's output, and a silenced"
                " sub-layer puts out zero"
            )
    if not config.lm_head:
        notes.append("no LM head: the token table's rows are the logits")
    return notes


def _default_symbols(model):
    passes = 1 + len(parts_of(model))
    return int(min(_MOST_TOKENS, max(_LEAST_TOKENS, _MULTIPLICATIONS / (passes * model.parameter_count()))))


def _shown_text(text, tokens, tokenizer, block_size, split):
    """Returns {"characters", "source", "cropped"}; cropped counts characters that exceed the context."""
    if text is None:
        length = min(block_size, _TEXT_LENGTH)
        start = _paragraph_start(tokens[: len(tokens) - length], tokenizer)
        characters = tokenizer.decode(tokens[start : start + length])
        return {"characters": characters, "source": f"{split} split", "cropped": 0}
    if not text:
        raise UserError("--text is empty; give at least one character")
    tokenizer.encode(text, hint="the run's vocabulary lacks it")
    return {"characters": text[-block_size:], "source": "--text", "cropped": max(0, len(text) - block_size)}


def _paragraph_start(tokens, tokenizer):
    if "\n" not in tokenizer.symbols:
        return 0
    ends = tokens == tokenizer.symbols.index("\n")
    after_blank = (ends[:-1] & ends[1:]).nonzero()[0]
    return int(after_blank[0]) + 2 if len(after_blank) else 0


def _attention(loaded, x, shown):
    """Returns the text, the maps [block][head][query][key] and the measures, or None without attention."""
    model, tokenizer = loaded.model, loaded.tokenizer
    if not any(block.attention is not None for block in model.blocks):
        return None
    tokens = torch.from_numpy(tokenizer.encode(shown["characters"]))[None]
    maps = [weights[0].tolist() for weights in attention_weights(model, tokens).values()]
    heads, uniform = measure_heads(model, x, tokenizer)
    return {"text": shown, "maps": maps, "heads": heads, "uniform": uniform}


def _compared_with_initial(loaded, corpus, x, records):
    """Returns gradient norms, stream scales and dead units of the model, before training and on the way."""
    initial = build_model(loaded.config, loaded.tokenizer.vocabulary_size).eval()
    batch = diagnostic_batch(corpus.train, loaded.config.model.block_size)
    before, after = diagnose(initial, *batch), diagnose(loaded.model, *batch)
    logged = logged_diagnostics(records)
    moments = {"initial": initial, "checkpoint": loaded.model}
    return {
        "gradient_norm": {"initial": before["gradient_norm"], "checkpoint": after["gradient_norm"]},
        "residual_rms": {when: stream_scales(model, x) for when, model in moments.items()},
        "dead_relu_share": {when: dead_units(model, x) for when, model in moments.items()},
        "training": [{"step": 0, **before}, *logged] if logged else [],
    }


def logged_diagnostics(records):
    """Returns [{"step", "gradient_norm", "residual_rms"}] of the records that hold whole ones."""
    logged = []
    for record in records:
        found = record.get("diagnostics")
        if not isinstance(found, dict):
            continue
        norms, scales = found.get("gradient_norm"), found.get("residual_rms")
        if isinstance(norms, dict) and all(map(_is_numbers, [*norms.values(), scales])):
            logged.append({"step": record["step"], "gradient_norm": norms, "residual_rms": scales})
    return logged


def _is_numbers(value):
    return isinstance(value, dict) and all(
        number is None or (isinstance(number, (int, float)) and not isinstance(number, bool))
        for number in value.values()
    )


def _strict(value):
    """Returns value with numbers that JSON cannot say as None."""
    if isinstance(value, dict):
        return {str(key): _strict(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_strict(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

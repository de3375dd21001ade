"""gptcli inspect: what happens inside a trained model."""

import shutil
import sys

from gptcli.terminal import printable

SUMMARY = """Look inside a run's model: what each head attends to, what each head, sub-layer and block is
worth, how gradients and activations change with depth, and what the model would predict at each depth.

RUN is a run directory, a checkpoint in it, or latest. Blocks and heads are numbered from 1."""
EXAMPLES = """examples:
  gptcli inspect latest
  gptcli inspect latest --text "ROMEO:" --png figures/
  gptcli inspect outputs/RUN --tensorboard --json"""


def add_arguments(parser):
    """Declares what the command takes."""
    parser.add_argument("run", metavar="RUN", help="run directory, checkpoint, or latest")
    parser.add_argument("--text", help="what the attention maps show (default: a paragraph of the split)")
    parser.add_argument(
        "--split", choices=("validation", "train"), default="validation", help="default validation"
    )
    parser.add_argument(
        "--windows",
        type=int,
        metavar="N",
        help="windows of the split to measure on (default: by the model's size)",
    )
    parser.add_argument("--png", metavar="PATH", help="write one figure (FILE.png), or all into a folder")
    parser.add_argument("--tensorboard", action="store_true", help="write figures and numbers into the run")
    parser.add_argument("--best", action="store_true", help="the best checkpoint instead of the newest")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments):
    """Inspects, writes what was asked for and prints; returns the exit status."""
    import json

    from gptcli.analysis import inspect_output

    targets = inspect_output.checked_targets(arguments.png, arguments.tensorboard)
    reference, facts = _inspect(arguments)
    for path in inspect_output.write_figures(targets, facts):
        print(f"wrote {printable(path)}", file=sys.stderr)
    if arguments.tensorboard:
        path = inspect_output.write_events(reference.run_path, facts)
        print(f"wrote {printable(path)}", file=sys.stderr)
    if arguments.json:
        print(json.dumps(facts, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        from gptcli.analysis.inspect_tables import terminal_lines

        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        print("\n".join(terminal_lines(facts, width)))
    return 0


def _inspect(arguments):
    """Returns the RunReference and the facts of its model."""
    import dataclasses

    import torch

    from gptcli.analysis.inspection import inspect
    from gptcli.errors import UserError
    from gptcli.runs import Run, resolve_run
    from gptcli.training.files import UnreadableFile
    from gptcli.training.loading import load_corpus_of, load_model

    if arguments.windows is not None and arguments.windows < 1:
        raise UserError(f"--windows {arguments.windows} must be at least 1")
    reference = resolve_run(arguments.run)
    if arguments.best and reference.checkpoint_name is None:
        reference = dataclasses.replace(reference, checkpoint_name="best")
    loaded = load_model(reference)
    if loaded.model.parameter_count() < 2**20:
        torch.set_num_threads(1)  # a small model's layers are not worth sharing out
    try:
        records = Run(reference.run_path).metrics()
    except UnreadableFile as error:
        loaded.notes.append(f"nothing is known of the run's training: {error}")
        records = []
    for note in loaded.notes:
        print(f"note: {printable(note)}", file=sys.stderr)
    facts = inspect(
        loaded,
        load_corpus_of(loaded),
        records,
        text=arguments.text,
        split=arguments.split,
        windows=arguments.windows,
    )
    shown = facts["attention"] and facts["attention"]["text"]
    if shown and shown["cropped"]:
        print(
            f"note: the context is {facts['block_size']} characters: the maps show the text's last ones,"
            f" without the {shown['cropped']} before them",
            file=sys.stderr,
        )
    return reference, facts

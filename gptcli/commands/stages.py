"""gptcli stages: the ladder as a table."""

import json

from gptcli.model.parameters import parameter_count
from gptcli.stages import TINY_SHAKESPEARE_VOCABULARY, load_stage, stage_model, stage_names
from gptcli.terminal import table

SUMMARY = "List the stages of the ladder, from a bigram table to the full GPT: what each changes and how large it is."
EXAMPLES = "examples:\n  gptcli stages\n  gptcli stages --json"


def add_arguments(parser):
    """Declares what the command takes."""
    parser.add_argument("--vocabulary", type=int, default=TINY_SHAKESPEARE_VOCABULARY, metavar="N", help="symbols")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments):
    """Prints the ladder; returns the exit status."""
    from gptcli.errors import UserError

    if arguments.vocabulary < 1:
        raise UserError(f"--vocabulary {arguments.vocabulary} must be at least 1")
    ladder = [_facts(name, arguments.vocabulary) for name in stage_names()]
    if arguments.json:
        print(json.dumps(ladder, indent=2, ensure_ascii=False))
        return 0
    rows = [
        (stage["name"], f"{stage['parameters']:,}", f"{stage['reaches']:.2f}", stage["title"]) for stage in ladder
    ]
    print("\n".join(table(rows, ("stage", "parameters", "val loss", "title"), right={1, 2})))
    print(f"\nparameters for a vocabulary of {arguments.vocabulary}; val loss on Tiny Shakespeare as it stands")
    return 0


def _facts(name, vocabulary):
    stage = load_stage(name)["stage"]
    return {
        "name": name,
        "title": stage["title"],
        "change": stage["change"],
        "section": stage["section"],
        "reaches": stage["reaches"],
        "parameters": parameter_count(stage_model(name), vocabulary),
    }

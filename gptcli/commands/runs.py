"""gptcli runs: the runs below a folder, with status and result."""

import json
import math
from datetime import datetime

from gptcli.errors import UserError
from gptcli.runs import find_runs
from gptcli.terminal import table

SUMMARY = "list runs with their status and result"
EXAMPLES = """examples:
  gptcli runs
  gptcli runs outputs/multirun --where stage=4_10 --where model.num_heads=4 --sort val_loss
"""
_SHOWN = ("status", "stage", "seed", "parameters", "step", "steps", "val_loss", "best_val_loss")
_HEADER = ("run", "status", "stage", "steps", "val loss", "best", "age", "note")


def add_arguments(parser):
    """Declares the command line."""
    parser.add_argument("paths", nargs="*", metavar="PATH", help="runs or folders of runs (default: outputs)")
    where = parser.add_argument("--where", action="append", default=[], metavar="KEY=VALUE")
    where.help = "only runs with this value, such as stage=4_10; repeatable"
    parser.add_argument("--sort", metavar="KEY", help="smallest value first (default: the newest run first)")
    parser.add_argument("--json", action="store_true", help="print a JSON list")


def run(arguments):
    """Prints the list; returns the exit status."""
    conditions = [_condition(text) for text in arguments.where]
    runs = [one for one in find_runs(arguments.paths) if all(_holds(one, *pair) for pair in conditions)]
    if arguments.sort:
        runs.sort(key=lambda one: _order(one.value(arguments.sort)))
    if arguments.json:
        print(json.dumps([_record(one) for one in runs], indent=2))
    elif runs:
        print("\n".join(table([_row(one) for one in runs], _HEADER, right=(3, 4, 5, 6))))
    else:
        print("no runs" + (" with these values" if conditions else "; start one with: gptcli train"))
    return 0


def _condition(text):
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise UserError(f"--where {text} is not KEY=VALUE, such as --where stage=4_10")
    return key, value


def _holds(run, key, wanted):
    found = run.value(key)
    if isinstance(found, (int, float)) and not isinstance(found, bool):
        try:
            return float(wanted) == found
        except ValueError:
            return False
    if found is None or isinstance(found, bool):
        return {None: "null", True: "true", False: "false"}[found] == wanted.lower()
    return str(found) == wanted


def _order(value):
    """Numbers before words before what is absent."""
    if isinstance(value, (int, float)) and not math.isnan(value):
        return 0, value, ""
    return (1, 0, value) if isinstance(value, str) else (2, 0, "")


def _record(run):
    record = {"path": str(run.path), **{key: run.value(key) for key in _SHOWN}}
    record.update(created=run.info.get("created"), damage=run.damage, checkpoints=run.checkpoints())
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in record.items()
    }


def _row(run):
    step, steps = run.value("step"), run.value("steps")
    return (
        run.path,
        run.status,
        run.value("stage") or "-",
        f"{_integer(step)}/{_integer(steps)}" if step != steps else _integer(steps),
        _loss(run.value("val_loss")),
        _loss(run.value("best_val_loss")),
        _age(run.info.get("created")),
        run.damage or run.value("reason") or "",
    )


def _integer(value):
    return f"{value:,}" if isinstance(value, int) else "-"


def _loss(value):
    return "-" if value is None else f"{value:.4f}"


def _age(created):
    try:
        seconds = datetime.now().timestamp() - datetime.fromisoformat(created).timestamp()
    except (TypeError, ValueError, OverflowError, OSError):
        return "-"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"

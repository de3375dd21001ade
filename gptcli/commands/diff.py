"""gptcli diff: what changed between two stages or two runs."""

import json
from math import prod
from pathlib import Path

from gptcli.errors import UserError
from gptcli.model.config import ModelConfig
from gptcli.model.parameters import parameter_shapes
from gptcli.stages import TINY_SHAKESPEARE_VOCABULARY, load_stage, stage_names
from gptcli.terminal import printable, table

SUMMARY = "Show the settings and parameters that differ between two stages or two runs."
EXAMPLES = "examples:\n  gptcli diff 4_9 4_10\n  gptcli diff 4_10 latest\n  gptcli diff outputs/A outputs/B --json"


def add_arguments(parser):
    """Declares what the command takes."""
    parser.add_argument("before", metavar="A", help="stage or RUN")
    parser.add_argument("after", metavar="B", help="stage or RUN")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments):
    """Prints the differences; returns the exit status."""
    before, after = _side(arguments.before), _side(arguments.after)
    settings = dict(_differences(before["settings"], after["settings"]))
    shapes = _parameter_differences(before, after)
    if arguments.json:
        print(json.dumps(_as_json(arguments, before, after, settings, shapes), indent=2, ensure_ascii=False))
        return 0
    print(f"{printable(arguments.before)} -> {printable(arguments.after)}   {printable(after['title'])}")
    rows = [(f"  {key}", f"{_word(old)} -> {_word(new)}") for key, (old, new) in settings.items()]
    rows.append(("  parameters", _parameter_words(before, after, shapes)))
    print("\n".join(table(rows)))
    return 0


def _side(name):
    """Returns title, flat settings and parameter shapes of a stage or run."""
    if name in stage_names():
        settings, vocabulary = load_stage(name), TINY_SHAKESPEARE_VOCABULARY
    elif Path(name).exists() or name == "latest":
        settings, vocabulary = _settings_of_run(name)
    else:
        raise UserError(f"{name!r} is neither a stage nor a run; the stages are {', '.join(stage_names())}")
    shapes = parameter_shapes(ModelConfig(**settings["model"]), vocabulary)
    flat = {
        key: value
        for key, value in _flat(settings).items()
        if not key.startswith(("stage.", "sweep.", "study.")) and value is not None
    }
    return {"title": settings["stage"]["title"], "settings": flat, "shapes": shapes}


def _settings_of_run(name):
    """Returns the settings of a run, checked, and the size of its vocabulary."""
    from gptcli.config import from_dict, to_dict
    from gptcli.runs import Run, resolve_run
    from gptcli.validation import validate_model

    run = Run(resolve_run(name).run_path)
    try:
        config = from_dict(run.config)
        validate_model(config.model)
    except UserError as error:
        raise UserError(f"{name} does not describe a model: {error}") from error
    vocabulary = (run.info.get("corpus") or {}).get("vocabulary")
    if not isinstance(vocabulary, list):
        raise UserError(f"{name} does not say what its vocabulary is")
    return to_dict(config), len(vocabulary)


def _flat(settings, prefix=""):
    flat = {}
    for key, value in settings.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = list(value) if isinstance(value, tuple) else value
    return flat


def _differences(before, after):
    for key in {**before, **after}:
        old, new = before.get(key), after.get(key)
        # A stage says nothing of seed or sweep: what only one side sets is a difference of runs, not of stages.
        if old != new and not (key == "seed" and None in (old, new)):
            yield key, (old, new)


def _parameter_differences(before, after):
    """Returns name -> change in the number of parameters, for every tensor that differs."""
    changes = {}
    for name in {**before["shapes"], **after["shapes"]}:
        old = prod(before["shapes"][name]) if name in before["shapes"] else 0
        new = prod(after["shapes"][name]) if name in after["shapes"] else 0
        if old != new:
            changes[name] = new - old
    return changes


def _parameter_words(before, after, changes):
    old, new = (sum(map(prod, side["shapes"].values())) for side in (before, after))
    if not changes:
        return f"{old:,} (the same)" if old == new else f"{old:,} -> {new:,}"
    shown = [f"{name} {change:+,}" for name, change in changes.items()]
    listed = ", ".join(shown[:4]) + (f" and {len(shown) - 4} more" if len(shown) > 4 else "")
    return f"{old:,} -> {new:,}   ({new - old:+,}: {listed})"


def _word(value):
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return f"{value:g}" if isinstance(value, float) else printable(value)


def _as_json(arguments, before, after, settings, shapes):
    return {
        "before": arguments.before,
        "after": arguments.after,
        "settings": {key: {"before": old, "after": new} for key, (old, new) in settings.items()},
        "parameters": {
            "before": sum(map(prod, before["shapes"].values())),
            "after": sum(map(prod, after["shapes"].values())),
            "by_tensor": shapes,
        },
    }

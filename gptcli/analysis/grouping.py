"""Sorts runs into groups by what differs between their settings besides the seed."""

from collections import Counter
from dataclasses import dataclass

from gptcli.config import nearest
from gptcli.errors import UserError
from gptcli.stages import natural_key

STAGE = "stage.name"
CORPUS = "corpus"

# Names, logs and files: no measured number depends on them.
_SILENT = (
    "seed",
    "stage.title",
    "stage.change",
    "stage.section",
    "stage.reaches",
    "trainer.diagnostics",
    "trainer.profile",
    "trainer.log_every",
    "trainer.checkpoint_every",
    "trainer.keep_checkpoints",
    "trainer.sample_every",
    "trainer.sample_tokens",
    "trainer.sample_prompts",
)
# Where and how a run was computed and measured: not what was trained, but worth a word when it differs.
_CIRCUMSTANCES = (
    "trainer.device",
    "trainer.threads",
    "trainer.compile",
    "trainer.eval_every",
    "trainer.eval_tokens",
)


@dataclass(frozen=True)
class RunGroup:
    """Runs that share the values of the grouping keys, and for each of them its flat settings."""

    label: str
    settings: dict
    runs: tuple
    flat: tuple


@dataclass(frozen=True)
class Grouping:
    """The groups of a set of runs.

    names: dotted key -> short name of the settings that tell groups apart. mixed: label -> keys that should
    have one value in that group and do not.
    """

    names: dict
    groups: tuple
    mixed: dict


def flatten(config, prefix=""):
    """Returns nested dicts as one dict of dotted keys; lists become tuples."""
    flat = {}
    for key, value in config.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = _hashable(value)
    return flat


def _hashable(value):
    if isinstance(value, (list, tuple)):
        return tuple(map(_hashable, value))
    return str(value) if isinstance(value, dict) else value


def settings_of(runs):
    """Returns for each run its flat settings without those that no number depends on.

    The corpus stands for itself: its name, with the start of its sha256 where two share one, replaces data.*.
    """
    corpora = {_corpus_of(run) for run in runs}
    shared_names = {name for name, count in Counter(name for name, _ in corpora).items() if count > 1}
    return [_settings_of(run, shared_names) for run in runs]


def _settings_of(run, shared_names):
    flat = {
        key: value
        for key, value in flatten(run.config).items()
        if key not in _SILENT
        and not key.startswith(("sweep.", "study."))
        and (not key.startswith("data.") or key == "data.validation_fraction")
    }
    name, digest = _corpus_of(run)
    flat[CORPUS] = f"{name} {digest[:8]}" if name in shared_names else name
    return flat


def _corpus_of(run):
    corpus = run.info.get("corpus") or {}
    return str(corpus.get("name", "unknown")), str(corpus.get("sha256", ""))


def varying(settings, keys=None):
    """Returns the keys, in the order of the configuration, that do not have one value in all the settings."""
    ordered = dict.fromkeys(key for one in settings for key in one if keys is None or key in keys)
    return [key for key in ordered if len({comparable(one.get(key)) for one in settings}) > 1]


def comparable(value):
    """Returns what two equal values of a setting share: 1 == True in Python, but not in a configuration."""
    return type(value).__name__ if isinstance(value, bool) else "", value


def group_runs(runs, by=()):
    """Returns the Grouping of runs, by the keys in by or else by everything that differs besides the seed.

    Raises:
        UserError: a key in by that no run has, or that names the seed.
    """
    settings = settings_of(runs)
    known = list(dict.fromkeys(key for one in settings for key in one))
    differing = [key for key in varying(settings) if key not in _CIRCUMSTANCES]
    keys = [resolve_key(key, known) for key in by] if by else _telling_keys(settings, differing)
    members = {}
    for run, one in zip(runs, settings, strict=True):
        members.setdefault(tuple(comparable(one.get(key)) for key in keys), []).append((run, one))
    names = _short_names(keys)
    groups, mixed = [], {}
    for _, chosen in sorted(members.items(), key=lambda item: tuple(sort_key(v) for _, v in item[0])):
        values = {key: chosen[0][1].get(key) for key in keys}
        label = _label(values, names, chosen[0][1].get(STAGE))
        flat = tuple(one for _, one in chosen)
        groups.append(RunGroup(label, values, tuple(run for run, _ in chosen), flat))
        if inside := [key for key in varying(flat) if key not in _CIRCUMSTANCES]:
            mixed[label] = inside
    return Grouping(names, tuple(groups), mixed)


def _telling_keys(settings, differing):
    """Drops what the stage alone decides: the stage then stands for it."""
    if STAGE not in differing:
        return differing
    by_stage = {}
    for one in settings:
        by_stage.setdefault(one.get(STAGE), []).append(one)
    return [
        key for key in differing if key == STAGE or any(key in varying(same) for same in by_stage.values())
    ]


def resolve_key(key, known):
    """Returns the full dotted key that a user's word stands for: itself, a group (stage) or a last part."""
    for candidate in (key, f"{key}.name"):
        if candidate in known:
            return candidate
    if key in ("data", "data.name", "data.path"):
        return CORPUS
    if key == "seed":
        raise UserError("--by seed: groups are made of runs that differ in their seed; name another setting")
    found = [other for other in known if other.rsplit(".", 1)[-1] == key]
    if len(found) == 1:
        return found[0]
    if found:
        raise UserError(f"--by {key} is ambiguous: {', '.join(found)}")
    raise UserError(f"--by {key}: no run has such a setting{nearest(key, known)}")


def shown(value):
    """Returns a setting's value as a user would write it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, tuple):
        return f"[{','.join(map(shown, value))}]"
    return str(value)


def _label(values, names, stage):
    parts = [
        shown(value) if key == STAGE else f"{names[key]}={shown(value)}" for key, value in values.items()
    ]
    return " ".join(parts) or shown(stage if stage is not None else "all runs")


def _short_names(keys):
    leaves = Counter(leaf(key) for key in keys)
    return {key: leaf(key) if leaves[leaf(key)] == 1 else key for key in keys}


def leaf(key):
    """Returns the last part of a key; of optimizer.name the group, which says more than "name"."""
    group, _, last = key.rpartition(".")
    return group if last == "name" and group else last


def sort_key(value):
    """Returns what sorts the values of a setting: null, then numbers, then words with 4_2 before 4_10."""
    if value is None:
        return (0, 0, [])
    if isinstance(value, (bool, int, float)):
        return (1, value, [])
    return (2, 0, natural_key(shown(value)))

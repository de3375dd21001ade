"""The typed schema of every setting, and the conversion of plain data into it.

A setting is a name and a number, a word or a list of these; nothing in a configuration names code. Ranges and words are
declared beside each field, and checks that need two settings at once are in gptcli/validation.py.
"""

import dataclasses
import difflib
import math
import types
import typing
from dataclasses import dataclass, field

from gptcli.errors import UserError
from gptcli.model.config import ModelConfig


def _number(minimum=None, maximum=None, above=None, below=None):
    return field(metadata={"minimum": minimum, "maximum": maximum, "above": above, "below": below})


def _word(*words, **more):
    return field(metadata={"words": words, **more})


@dataclass(frozen=True)
class StageConfig:
    """Where a configuration stands on the ladder.

    reaches is the validation loss in nats that the stage as it stands is known to reach on Tiny Shakespeare.
    """

    name: str
    title: str
    change: str
    section: str
    reaches: float | None = _number(above=0.0)


@dataclass(frozen=True)
class DataConfig:
    """The corpus; keys that a corpus does not use are null."""

    name: str
    path: str | None
    validation_fraction: float = _number(above=0.0, below=1.0)
    synthetic_seed: int | None = _number(minimum=0)
    synthetic_characters: int | None = _number(minimum=1)


@dataclass(frozen=True)
class OptimizerConfig:
    """Adam (Kingma and Ba, 2015) or AdamW (Loshchilov and Hutter, 2019)."""

    name: str = _word("adam", "adamw")
    learning_rate: float = _number(above=0.0, maximum=1000.0)
    weight_decay: float = _number(minimum=0.0, maximum=1000.0)
    betas: tuple[float, float] = _number(minimum=0.0, below=1.0)


@dataclass(frozen=True)
class ScheduleConfig:
    """How the learning rate moves over a run."""

    name: str = _word("constant", "linear", "cosine")
    warmup_steps: int = _number(minimum=0)
    final_fraction: float = _number(minimum=0.0, maximum=1.0)


@dataclass(frozen=True)
class RecipeConfig:
    """Where random numbers go: the project's own way, or the walkthrough's step files' way."""

    name: str = _word("default", "walkthrough")


@dataclass(frozen=True)
class TrainerConfig:
    """The training loop, what it measures and where it runs."""

    steps: int = _number(minimum=1)
    batch_size: int = _number(minimum=1)
    eval_every: int = _number(minimum=1)
    eval_tokens: int | None = _number(minimum=1)
    checkpoint_every: int = _number(minimum=1)
    keep_checkpoints: int = _number(minimum=0)
    log_every: int = _number(minimum=1)
    diagnostics: bool
    sample_every: int = _number(minimum=0)
    sample_tokens: int = _number(minimum=1, maximum=100_000)
    sample_prompts: tuple[str, ...]
    grad_clip: float = _number(minimum=0.0)
    on_nonfinite: str = _word("stop", "skip")
    device: str
    precision: str = _word("auto", "fp32", "bf16")
    threads: int | str = _word("auto", also="a number of threads", minimum=1, maximum=1024)
    compile: bool | str = _word("auto", also="true or false")
    profile: bool


@dataclass(frozen=True)
class SweepConfig:
    """How the jobs of a sweep are run."""

    stop_on_failure: bool
    workers: int | str = _word("auto", also="a number of jobs", minimum=1, maximum=1024)


@dataclass(frozen=True)
class StudyConfig:
    """The question that a sweep answers and how its runs are read; a run of its own belongs to the study none.

    by are the settings that tell its groups apart, baseline describes the group (or for each value of the other
    settings the group) to compare with. The figure draws the loss against the setting x, a line for each value of the
    setting lines, a panel for each of panels.
    """

    name: str
    question: str | None
    claim: str | None
    by: tuple[str, ...]
    baseline: str | None
    x: str | None
    lines: str | None
    panels: str | None


@dataclass(frozen=True)
class Config:
    """Everything that defines a run."""

    seed: int = _number(minimum=0, maximum=2**32 - 1)
    stage: StageConfig
    model: ModelConfig
    data: DataConfig
    optimizer: OptimizerConfig
    schedule: ScheduleConfig
    recipe: RecipeConfig
    trainer: TrainerConfig
    sweep: SweepConfig
    study: StudyConfig


def to_dict(config):
    """Returns a Config as plain data, as run.json and checkpoints hold it: tuples become lists."""

    def plain(value):
        if isinstance(value, dict):
            return {key: plain(one) for key, one in value.items()}
        return [plain(one) for one in value] if isinstance(value, tuple) else value

    return plain(dataclasses.asdict(config))


def from_dict(data):
    """Returns the Config that plain data describes.

    Raises:
        UserError: an unknown or missing key, a value of the wrong type or out of its range.
    """
    return _convert_group(data, Config, "")


def model_from_dict(data):
    """Returns the ModelConfig that plain data describes, whatever else a run of another version was set to.

    Raises:
        UserError: as from_dict, or the parts do not fit together.
    """
    from gptcli.validation import validate_model

    model = _convert_group(data, ModelConfig, "model.")
    validate_model(model)
    return model


def study_from_dict(data):
    """Returns the StudyConfig that plain data describes.

    Raises:
        UserError: as from_dict.
    """
    return _convert_group(data, StudyConfig, "study.")


def setting_keys(kind=Config, prefix=""):
    """Returns every dotted key of the schema, groups included."""
    keys = []
    for item in dataclasses.fields(kind):
        keys.append(prefix + item.name)
        if dataclasses.is_dataclass(item.type):
            keys += setting_keys(item.type, f"{prefix}{item.name}.")
    return keys


def text_keys(kind=Config, prefix=""):
    """Returns the dotted keys of the settings that are free text, such as names and paths."""
    keys = set()
    for item in dataclasses.fields(kind):
        if dataclasses.is_dataclass(item.type):
            keys |= text_keys(item.type, f"{prefix}{item.name}.")
        elif item.type in (str, str | None) and "words" not in item.metadata:
            keys.add(prefix + item.name)
    return keys


def nearest(word, words):
    """Returns "; did you mean X?" for the word closest to a misspelt one, or nothing."""
    found = difflib.get_close_matches(str(word), [str(other) for other in words], n=1, cutoff=0.6)
    return f"; did you mean {found[0]}?" if found else ""


def unknown_key(key):
    """Returns the error for a key that the schema lacks."""
    known = [other for other in setting_keys() if "." in other or other == "seed"]
    group, _, leaf = key.rpartition(".")
    leaves = [other.rpartition(".")[2] for other in known if group and other.rpartition(".")[0] == group]
    if not leaves:
        return UserError(f"unknown key {key}{nearest(key, known)}")
    # Within a group its name, which all keys share, must not count: model.n_heads means num_heads, and lr is short
    # for learning_rate.
    found = [one for one in leaves if leaf == "".join(word[0] for word in one.split("_"))]
    found = found or difflib.get_close_matches(leaf, leaves, n=1, cutoff=0.5)
    hint = f"did you mean {group}.{found[0]}?" if found else f"{group} has {', '.join(leaves)}"
    return UserError(f"unknown key {key}; {hint}")


def _convert_group(data, kind, prefix):
    if not isinstance(data, dict):
        raise UserError(f"{prefix.rstrip('.')}={data!r} is not a group of settings")
    fields = {item.name: item for item in dataclasses.fields(kind)}
    for key in data:
        if key not in fields:
            raise unknown_key(f"{prefix}{key}")
    for key in fields:
        if key not in data:
            raise UserError(f"{prefix}{key} is missing")
    return kind(**{key: _convert_field(data[key], item, prefix + key) for key, item in fields.items()})


def _convert_field(value, item, key):
    if dataclasses.is_dataclass(item.type):
        return _convert_group(value, item.type, f"{key}.")
    value = _convert(value, item.type, key, item.metadata)
    _check_range(value, key, item.metadata)
    return value


def _convert(value, kind, key, metadata):
    origin = typing.get_origin(kind)
    if origin is tuple:
        return _convert_list(value, typing.get_args(kind), key, metadata)
    if origin is types.UnionType:
        return _convert_union(value, typing.get_args(kind), key, metadata)
    converted = _convert_or_none(value, kind)
    if converted is None:
        raise UserError(f"{key}={_shown(value)} is not {_expected((kind,), metadata)}")
    return converted


def _convert_union(value, kinds, key, metadata):
    if type(None) in kinds and (value is None or value == "null"):
        return None
    if isinstance(value, str) and value in metadata.get("words", ()):
        return value
    for kind in kinds:
        if kind in (int, float, bool) or (kind is str and "words" not in metadata):
            converted = _convert_or_none(value, kind)
            if converted is not None:
                return converted
    raise UserError(f"{key}={_shown(value)} is not {_expected(kinds, metadata)}")


def _convert_or_none(value, kind):
    return {int: _to_int, float: _to_float, bool: _to_bool, str: _to_str}[kind](value)


def _convert_list(value, kinds, key, metadata):
    if not isinstance(value, (list, tuple)):
        raise UserError(f"{key}={_shown(value)} is not a list; write it as '{key}=[a,b]'")
    variadic = len(kinds) == 2 and kinds[1] is Ellipsis
    if not variadic and len(value) != len(kinds):
        raise UserError(f"{key}={_shown(value)} has {len(value)} values; {len(kinds)} are needed")
    return tuple(_convert(one, kinds[0], key, metadata) for one in value)


def _to_int(value):
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        value = _to_float(value)
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        return int(value)
    return None


def _to_float(value):
    if isinstance(value, bool) or value is None:
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _to_bool(value):
    text = str(value).lower()
    return {"true": True, "yes": True, "on": True, "1": True}.get(
        text, {"false": False, "no": False, "off": False, "0": False}.get(text)
    )


def _to_str(value):
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _expected(kinds, metadata):
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "null"}
    if metadata.get("words"):
        named = ", ".join(metadata["words"])
        return f"{named} or {metadata['also']}" if metadata.get("also") else f"one of {named}"
    return " or ".join(words[kind] for kind in kinds)


def _check_range(value, key, metadata):
    words = metadata.get("words")
    if isinstance(value, str):
        if words and value not in words:
            raise UserError(f"{key}={_shown(value)} is not one of {', '.join(words)}{nearest(value, words)}")
        return
    if isinstance(value, bool):
        return
    for one in value if isinstance(value, tuple) else (value,):
        if isinstance(one, (int, float)):
            _check_number(one, key, metadata)


def _check_number(value, key, metadata):
    bounds = {
        "minimum": (lambda bound: value >= bound, "at least"),
        "maximum": (lambda bound: value <= bound, "at most"),
        "above": (lambda bound: value > bound, "above"),
        "below": (lambda bound: value < bound, "below"),
    }
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{key}={value} is not a finite number")
    if abs(value) > 2**53:
        raise UserError(f"{key}={_shown(value)} is too large")
    for name, (holds, words) in bounds.items():
        bound = metadata.get(name)
        if bound is not None and not holds(bound):
            raise UserError(f"{key}={value} must be {words} {bound}")


def _shown(value):
    """Returns a value as a user would write it, cut where it is long."""
    words = {None: "null", True: "true", False: "false"}
    text = words[value] if value is None or isinstance(value, bool) else str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."

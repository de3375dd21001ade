"""From what a user types to a typed configuration: Hydra composes, with stage names protected from its grammar.

Hydra reads 4_10 as the number 410 wherever it is not quoted, so stage names are quoted before it sees them.
"""

import contextlib
import dataclasses
import os
import re
import secrets
from pathlib import Path

import yaml
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, QuotedString
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gptcli.config import from_dict, nearest, setting_keys, text_keys, unknown_key
from gptcli.errors import UserError
from gptcli.stages import check_stage, config_directory, config_groups, default_groups, group_values

# A quoted string, to be left alone, or a bare stage name in a list or a call.
_STAGE_WORD = re.compile(r"""'(?:\\.|[^'])*'|"(?:\\.|[^"])*"|(?<![\w.*?])(\d+_\d+)(?![\w.*?])""")
_OVERRIDE = re.compile(r"(?P<prefix>\+\+|\+|~)?(?P<key>[\w./]+)(?P<package>@[\w.:]+)?(?P<rest>=.*)?$", re.DOTALL)


@contextlib.contextmanager
def hydra_session():
    """Makes Hydra ready to compose from the shipped configuration."""
    OmegaConf.register_new_resolver(
        "short_id", lambda: secrets.token_hex(2), use_cache=True, replace=True
    )
    GlobalHydra.instance().clear()
    with initialize_config_dir(version_base="1.3", config_dir=str(config_directory())):
        yield GlobalHydra.instance().hydra


def compose(overrides, *, config_directories=()):
    """Returns (Config, the composed DictConfig with Hydra's own node) for prepared overrides.

    Raises:
        UserError: the overrides do not parse, name an unknown key or group value, or give a value that the schema
            refuses.
    """
    search_path = [f"hydra.searchpath={_search_path(config_directories)}"] if config_directories else []
    with translated_errors():
        composed = hydra_compose("config", overrides=[*search_path, *overrides], return_hydra_config=True)
    return typed(composed), composed


def sweep_parameters(overrides, config_directories=()):
    """Returns, as overrides still to be prepared, what the composed configuration's own hydra.sweeper.params hold.

    Raises:
        UserError: overrides sweep over studies, each of which is a sweep of its own.
    """
    search_path = [f"hydra.searchpath={_search_path(config_directories)}"] if config_directories else []
    with translated_errors():
        parsed = OverridesParser.create().parse_overrides(overrides)
        if any(one.key_or_group == "study" and one.is_sweep_override() for one in parsed):
            raise UserError("a study is a sweep of its own; run one after the other")
        composed = GlobalHydra.instance().hydra.compose_config(
            "config",
            [*search_path, *overrides],
            RunMode.MULTIRUN,
            with_log_configuration=False,
            from_shell=False,
        )
    return [f"{key}={value}" for key, value in (composed.hydra.sweeper.params or {}).items()]


def typed(composed):
    """Returns the Config that a composed DictConfig describes."""
    with translated_errors():
        plain = {key: composed[key] for key in composed if key != "hydra"}
        data = OmegaConf.to_container(OmegaConf.create(plain, parent=None), resolve=True)
    return from_dict(data)


def prepare(overrides, *, multirun=False, config_directories=()):
    """Returns overrides as Hydra must see them: stage names quoted, globs over stages expanded, keys checked.

    Raises:
        UserError: a key, group value or stage does not exist, or a sweep is given without -m.
    """
    _check_directories(config_directories)
    return [_prepared(override, multirun, config_directories) for override in overrides]


def _prepared(override, multirun, config_directories):
    match = _OVERRIDE.match(override)
    if not match:
        raise UserError(f"{override!r} is not KEY=VALUE")
    key, prefix, rest = match["key"], match["prefix"] or "", match["rest"]
    if key.split(".")[0] == "hydra" or key.startswith("hydra/"):
        return _prepared_for_hydra(override, key, rest)
    if rest is None and prefix != "~":
        raise UserError(f"{override!r} is not KEY=VALUE")
    groups = config_groups(config_directories)
    if key not in groups and key not in _leaf_keys():
        raise unknown_key(key) if "." in key or key == "seed" else _unknown_group(key, groups)
    if prefix == "~":
        raise UserError(f"{override}: every setting has a value; give another one instead of removing it")
    # What has a value already means the same with + and ++ as without; a group without a default needs its +.
    # A group inside another one has its default there.
    prefix = "" if key not in groups or key in default_groups() or "/" in key else "+"
    head = f"{prefix}{key}{match['package'] or ''}="
    return _prepared_value(head, key, rest[1:], groups, multirun, config_directories)


def _prepared_value(head, key, value, groups, multirun, config_directories):
    if key == "data.path" and (os.path.exists(value) or not _parses(f"{key}={value}")):
        return head + quoted(value)
    text = head + (_STAGE_WORD.sub(_stage_quoted, value) if key == "stage" else value)
    parsed = _parse(text)
    if key == "study" and not multirun and parsed.value() != "none":
        raise UserError(f"study={value} is a sweep; it needs -m: gptcli train -m study={value}")
    if key in text_keys() and isinstance(parsed.value(), (bool, int, float)):
        return head + quoted(value)  # a name such as 1e5 stays as it was typed
    if parsed.is_sweep_override() and not multirun:
        literal = f"; as one path it is written \"{key}={quoted(value)}\"" if key == "data.path" else ""
        raise UserError(f"{key}={value} names several values; sweep over them with: gptcli train -m ...{literal}")
    if key in groups:
        choices = _choices(parsed, key, config_directories)
        if not choices:
            known = ", ".join(group_values(key, config_directories))
            raise UserError(f"{key}={value} matches nothing; use one of {known}")
        if isinstance(parsed.value(), Glob):
            text = head + ",".join(quoted(choice) for choice in choices)
        for choice in choices:
            _check_choice(key, choice, config_directories)
    return text


def _stage_quoted(word):
    return f"'{word[1]}'" if word[1] else word[0]


def _prepared_for_hydra(override, key, rest):
    """Returns an override of Hydra's own node, whose keys Hydra itself does not check when they are added."""
    from hydra.conf import HydraConf

    node, parts = OmegaConf.structured(HydraConf), key.split(".")
    for index, part in enumerate(parts[1:], 1):
        if not isinstance(node, DictConfig) or not dataclasses.is_dataclass(OmegaConf.get_type(node)):
            break
        if part not in node.keys():  # noqa: SIM118 (a key without a value yet counts, too)
            siblings = [".".join([*parts[:index], str(one)]) for one in node]
            raise UserError(f"unknown key {key}{nearest(key, siblings)}")
        node = node._get_node(part)
    if key in ("hydra.run.dir", "hydra.sweep.dir") and rest:
        value = rest[1:]
        if not value.strip("'\" "):
            raise UserError(f"{key}={value} names no folder; the current one is {key}=.")
        # A folder's name is text, whatever Hydra's grammar would make of it.
        if not _parses(f"{key}={value}") or not isinstance(_parse(f"{key}={value}").value(), (str, QuotedString)):
            return f"{key}={quoted(value, interpolated=True)}"
    return override


def _parse(text):
    try:
        return OverridesParser.create().parse_override(text)
    except HydraException as error:
        key, _, value = text.partition("=")
        literal = quoted(value).replace('"', '\\"')
        raise UserError(f'{key}={value} does not parse; as literal text it is written "{key}={literal}"') from error


def _parses(text):
    try:
        return OverridesParser.create().parse_override(text) is not None
    except HydraException:
        return False


def _choices(parsed, key, config_directories):
    value = parsed.value()
    if isinstance(value, Glob):
        include, exclude = (
            [getattr(pattern, "text", pattern) for pattern in patterns]
            for patterns in (value.include, value.exclude)
        )
        return Glob(include, exclude).filter(group_values(key, config_directories))
    if parsed.is_sweep_override():
        return [str(one).strip("'\"") for one in parsed.sweep_string_iterator()]
    return [str(value) or "''"]


def _check_choice(group, choice, config_directories):
    if group == "stage":
        check_stage(choice, config_directories)
        return
    values = group_values(group, config_directories)
    if choice not in values:
        raise UserError(f"{group}={choice} is not one of {', '.join(values)}{nearest(choice, values)}")


def _leaf_keys():
    keys = setting_keys()
    return {key for key in keys if not any(other.startswith(f"{key}.") for other in keys)}


def _unknown_group(key, groups):
    hint = nearest(key, [*groups, "seed"])
    return UserError(f"unknown key {key}{hint}" if hint else f"unknown key {key}; the groups are {', '.join(groups)}")


def quoted(text, *, interpolated=False):
    """Returns text as a literal of Hydra's override grammar; interpolated leaves ${...} to be resolved."""
    escaped = re.sub(r"\\+(?=')|\\+$", lambda found: found[0] * 2, text).replace("'", "\\'")
    if not interpolated:
        # Backslashes before ${ pair up, and an odd one makes what follows literal.
        escaped = re.sub(r"(\\*)\$\{", lambda found: found[1] * 2 + "\\${", escaped)
    return f"'{escaped}'"


def _check_directories(directories):
    for directory in directories:
        if not Path(directory).is_dir():
            raise UserError(f"--config-dir {directory} is not a folder")


def _search_path(directories):
    _check_directories(directories)
    return "[" + ",".join(quoted(f"file://{Path(directory).resolve()}") for directory in directories) + "]"


@contextlib.contextmanager
def translated_errors():
    """Turns what Hydra and OmegaConf raise into one line."""
    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        lines = [line for line in lines if not line.startswith(("full_key:", "object_type=", "See https:"))]
        kept = next((number for number, line in enumerate(lines) if line.startswith("Config search path")), 2)
        if len(lines) > 1 and lines[1].startswith("Available options"):
            lines[1:kept] = [f"{lines[1]} {', '.join(lines[2:kept])}"]
        raise UserError("; ".join(lines[:2]) or type(error).__name__) from error
    except yaml.YAMLError as error:
        raise UserError(f"a configuration file is not YAML: {' '.join(str(error).split())}") from error


def run_directory_path(composed):
    """Returns the folder that hydra.run.dir names."""
    return _hydra_value(composed, "run.dir")


def _hydra_value(composed, key):
    from hydra.core.hydra_config import HydraConfig

    HydraConfig.instance().set_config(composed)
    with translated_errors():
        return str(OmegaConf.select(composed, f"hydra.{key}", throw_on_missing=True))


def provenance_yaml(composed):
    """Returns the YAML of the settings, all resolved, and of Hydra's own node, as a run's .hydra folder holds them."""
    with translated_errors():
        settings = OmegaConf.create({key: composed[key] for key in composed if key != "hydra"})
        hydra = OmegaConf.create({"hydra": OmegaConf.to_container(composed.hydra, resolve=False)})
        return OmegaConf.to_yaml(settings, resolve=True), OmegaConf.to_yaml(hydra)


def sweep_directory_path(composed):
    """Returns the folder that hydra.sweep.dir names."""
    return _hydra_value(composed, "sweep.dir")


def chosen_launcher(composed):
    """Returns how the jobs of a sweep are run: basic (each in a process of its own) or ensemble (batched together).

    Raises:
        UserError: hydra/launcher or hydra/sweeper names anything else.
    """
    choices = composed.hydra.runtime.choices
    for group, known in (("hydra/launcher", ("basic", "ensemble")), ("hydra/sweeper", ("basic",))):
        if choices[group] not in known:
            raise UserError(f"{group}={choices[group]} is not one of {', '.join(known)}")
    return choices["hydra/launcher"]

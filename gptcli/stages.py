"""The ladder: stage files found, ordered and resolved, without Hydra or torch so that listing them is quick."""

import re
from functools import cache
from pathlib import Path

import yaml

from gptcli.config import nearest
from gptcli.errors import UserError
from gptcli.model.config import ModelConfig

TINY_SHAKESPEARE_VOCABULARY = 65


def config_directory():
    """Returns the folder of the shipped configuration: inside the package when installed, beside it in a checkout."""
    package = Path(__file__).resolve().parent
    inside, beside = package / "conf", package.parent / "conf"
    return inside if inside.is_dir() else beside


def natural_key(name):
    """Sorts 4_2 before 4_10."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.findall(r"\d+|\D+", name)]


def stage_names(extra_directories=()):
    """Returns the names of all stages in the order of the ladder."""
    folders = [config_directory(), *map(Path, extra_directories)]
    names = {path.stem for folder in folders for path in (folder / "stage").glob("*.yaml")}
    return sorted(names, key=natural_key)


def group_values(group, extra_directories=()):
    """Returns the names that a config group can be set to."""
    if group == "stage":
        return stage_names(extra_directories)
    folders = [config_directory(), *map(Path, extra_directories)]
    return sorted({path.stem for folder in folders for path in (folder / group).glob("*.yaml")})


def config_groups(extra_directories=()):
    """Returns the names of the config groups, those inside another group (study/norm_placement) included."""
    folders = [config_directory(), *map(Path, extra_directories)]
    found = {path.relative_to(folder) for folder in folders for path in _folders(folder)}
    return sorted(path.as_posix() for path in found if path.parts[0] != "hydra")


def _folders(folder):
    found = [path for path in folder.iterdir() if path.is_dir() and path.name != "__pycache__"]
    return [inner for path in found for inner in (path, *_folders(path))]


def check_stage(name, extra_directories=()):
    """Raises UserError, with the nearest name, unless a stage is called name."""
    names = stage_names(extra_directories)
    if name not in names:
        hint = nearest(name, names) or f"; the stages are {', '.join(names)}"
        raise UserError(f"unknown stage {name}{hint}")


@cache
def load_stage(name):
    """Returns the settings {group: {key: value}} that a shipped stage and those before it make together.

    Only what stage files may hold is understood: one parent in the defaults list, and a body of plain values.
    """
    check_stage(name)
    body = yaml.safe_load((config_directory() / "stage" / f"{name}.yaml").read_text(encoding="utf-8"))
    parents = [entry for entry in body.pop("defaults", []) if isinstance(entry, str) and entry != "_self_"]
    merged = dict(load_stage(parents[0])) if parents else base_settings()
    for group, values in body.items():
        merged[group] = {**merged.get(group, {}), **values}
    return merged


@cache
def base_settings():
    """Returns the settings that every stage starts from: the default choice of each group."""
    groups = {group: value for group, value in default_groups().items() if group not in ("stage", "study")}
    files = {group: config_directory() / group / f"{value}.yaml" for group, value in groups.items()}
    return {group: yaml.safe_load(path.read_text(encoding="utf-8")) for group, path in files.items()}


@cache
def default_groups():
    """Returns group -> value of the groups that have a default choice."""
    root = yaml.safe_load((config_directory() / "config.yaml").read_text(encoding="utf-8"))
    return {group: value for entry in root["defaults"] if isinstance(entry, dict) for group, value in entry.items()}


def stage_model(name):
    """Returns the ModelConfig of a shipped stage."""
    return ModelConfig(**load_stage(name)["model"])

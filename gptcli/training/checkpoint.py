"""Checkpoints that are complete or absent: written aside, hashed, flushed, renamed; checked when loaded."""

import contextlib
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

import torch

from gptcli.errors import RunError
from gptcli.training.files import (
    PARTIAL,
    UnreadableFile,
    atomic_write_text,
    free_space,
    parse_json,
    partial_path,
    read_regular,
    remove,
    remove_leftovers,
    sync_directory,
    write_synced,
)
from gptcli.training.run_directory import STEP_NAME, RunDirectory, step_name
from gptcli.training.tensor_file import parse_tensors, tensor_chunks

CHECKPOINT_FORMAT = 1
_REQUIRED = {"model.safetensors", "optimizer.safetensors", "state.json"}
_FILES = _REQUIRED | {"random.safetensors"}
_MANIFEST_BYTES = 10_000
_STATE_BYTES = 64 * 2**20
# The old checkpoint of a step that is being saved again waits under this name until the new one is in place.
_REPLACED = ".replaced-"


class CheckpointNotSaved(RunError):
    """A checkpoint could not be written; those before it, and the pointers, are as they were."""


class CheckpointDamaged(RunError):
    """A checkpoint is incomplete or was changed."""


class NoCheckpoint(RunError):
    """A run has no checkpoint that loads."""


@dataclass
class Checkpoint:
    """What save_checkpoint was given, and where it lies."""

    step: int
    model: dict[str, torch.Tensor]
    optimizer: dict[str, torch.Tensor]
    state: dict
    extra: dict[str, torch.Tensor]
    path: Path


def save_checkpoint(run_directory, step, model, optimizer, state, *, keep, best, extra=None):
    """Saves a checkpoint, points `latest` (and `best`) to it, and removes those that need not be kept.

    The caller holds the run's lock. Tensors keep their types.

    Args:
        state: plain data; json must be able to write it.
        keep: how many of the newest checkpoints stay, 0 for all; those that a pointer names always stay.
        best: whether `best` shall point to this one.
        extra: more tensors, such as states of random number generators.

    Returns:
        The checkpoint's folder.

    Raises:
        CheckpointNotSaved: the disk is full, the folder not writable, ...
    """
    run = RunDirectory(run_directory)
    path = run.checkpoints / step_name(step)
    contents = {
        "model.safetensors": tensor_chunks(model),
        "optimizer.safetensors": tensor_chunks(optimizer),
        "state.json": [json.dumps(state, separators=(",", ":")).encode()],
    }
    if extra:
        contents["random.safetensors"] = tensor_chunks(extra)
    try:
        _make_folder(run.checkpoints)
        replaced = _write_aside_and_rename(path, step, contents)
        # `best` first: a kill between the two must not leave a resumed run that takes its best for saved.
        for which in ("best", "latest") if best else ("latest",):
            atomic_write_text(run.checkpoints / which, path.name + "\n")
    except OSError as error:
        raise CheckpointNotSaved(
            f"checkpoint {path} could not be saved: {error.strerror or error} ({free_space(run.checkpoints)})"
        ) from error
    _discard(replaced)
    _remove_old(run, step, keep)
    return path


def _make_folder(checkpoints):
    if checkpoints.is_symlink():
        raise OSError(None, "checkpoints is a symbolic link")
    checkpoints.mkdir(parents=True, exist_ok=True)
    remove_leftovers(checkpoints)
    for waiting in checkpoints.glob(f"{_REPLACED}*"):
        original = checkpoints / _replaced_name(waiting)
        if original.exists():
            _discard(waiting)
        else:
            os.replace(waiting, original)


def _write_aside_and_rename(path, step, contents):
    """Returns where the checkpoint that had this name before waits, or None."""
    partial = partial_path(path.parent, path.name)
    replaced = None
    try:
        os.mkdir(partial)
        body = {"format": CHECKPOINT_FORMAT, "step": step, "files": {}}
        for name, chunks in contents.items():
            body["files"][name] = _write_hashed(partial / name, chunks)
        write_synced(partial / "manifest.json", [_manifest_bytes(body)])
        sync_directory(partial)
        if path.exists():
            waiting = path.parent / partial.name.replace(PARTIAL, _REPLACED)
            os.replace(path, waiting)
            replaced = waiting
        os.replace(partial, path)
    except BaseException:
        if replaced:
            with contextlib.suppress(OSError):
                os.replace(replaced, path)
        remove(partial)
        raise
    sync_directory(path.parent)
    return replaced


def _write_hashed(path, chunks):
    digest, size = hashlib.sha256(), 0

    def hashed():
        nonlocal size
        for chunk in chunks:
            digest.update(chunk)
            size += len(chunk)
            yield chunk

    write_synced(path, hashed())
    return {"sha256": digest.hexdigest(), "size": size}


def _manifest_bytes(body):
    """The one way to write a manifest: any changed byte, blanks included, differs from it."""
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return (json.dumps({**body, "sha256": digest}, indent=1, sort_keys=True) + "\n").encode()


def _discard(path):
    if path is not None:
        # Renamed first, so that a kill while deleting leaves no half checkpoint under a real name.
        with contextlib.suppress(OSError):
            aside = partial_path(path.parent, "old")
            os.replace(path, aside)
            remove(aside)


def _remove_old(run, step, keep):
    # Checkpoints of later steps, left when a run went on from an earlier one, do not count and stay.
    names = [name for name in run.checkpoint_names() if int(name[5:]) <= step]
    kept = set(names[-keep:]) if keep else set(names)
    for which in ("latest", "best"):
        with contextlib.suppress(UnreadableFile):
            kept.add(run.pointer(which))
    for name in names:
        if name not in kept:
            _discard(run.checkpoints / name)


def _replaced_name(path):
    return path.name.removeprefix(_REPLACED).rpartition("-")[0]


def load_checkpoint(path):
    """Loads a checkpoint's folder after checking names, sizes, hashes and tensor headers.

    Raises:
        CheckpointDamaged: names the checkpoint, the file and what is wrong.
    """
    path = Path(path)
    try:
        if path.is_symlink() or not path.is_dir():
            raise UnreadableFile("it is not a folder")
        step, files = _read_manifest(path)
        data = {name: _read_verified(path / name, **entry) for name, entry in files.items()}
        tensors = {name: parse_tensors(data[name], name) for name in data if name.endswith(".safetensors")}
        state = parse_json(data["state.json"], "state.json")
    except UnreadableFile as error:
        raise CheckpointDamaged(f"checkpoint {path} is damaged: {error}") from error
    return Checkpoint(
        step=step,
        model=tensors["model.safetensors"],
        optimizer=tensors["optimizer.safetensors"],
        state=state,
        extra=tensors.get("random.safetensors", {}),
        path=path,
    )


def _read_manifest(path):
    data = read_regular(path / "manifest.json", _MANIFEST_BYTES)
    body = parse_json(data, "manifest.json")
    version = body.get("format")
    if type(version) is int and version > CHECKPOINT_FORMAT:
        raise UnreadableFile(f"format {version} needs a newer gptcli; this one reads {CHECKPOINT_FORMAT}")
    body.pop("sha256", None)
    step, files = body.get("step"), body.get("files")
    if _manifest_bytes(body) != data or version != CHECKPOINT_FORMAT:
        raise UnreadableFile("manifest.json was changed")
    if type(step) is not int or not isinstance(files, dict) or not _REQUIRED <= set(files) <= _FILES:
        raise UnreadableFile("manifest.json does not describe a checkpoint")
    if not all(_is_entry(entry) for entry in files.values()):
        raise UnreadableFile("manifest.json does not describe its files")
    named = _replaced_name(path) if path.name.startswith(_REPLACED) else path.name
    if STEP_NAME.fullmatch(named) and int(named[5:]) != step:
        raise UnreadableFile(f"manifest.json is that of step {step}")
    return step, files


def _is_entry(entry):
    return (
        isinstance(entry, dict)
        and set(entry) == {"sha256", "size"}
        and type(entry["size"]) is int
        and isinstance(entry["sha256"], str)
    )


def _read_verified(path, sha256, size):
    if path.is_file() and path.stat().st_size != size:
        raise UnreadableFile(f"{path.name} has {path.stat().st_size:,} bytes instead of {size:,}")
    data = bytearray(read_regular(path, min(size, _STATE_BYTES) if path.suffix == ".json" else size))
    if hashlib.sha256(data).hexdigest() != sha256:
        raise UnreadableFile(f"{path.name} does not match its sha256")
    return data


def newest_good_checkpoint(run_directory, which="latest"):
    """Loads the checkpoint asked for or, where that is damaged or gone, the newest one that loads.

    Args:
        which: "latest", "best", a step, or the name of a checkpoint's folder.

    Returns:
        (Checkpoint, notes): the notes say, one line each, what was wrong and what is used instead.

    Raises:
        NoCheckpoint: none loads, or the run never had one of that step.
    """
    run = RunDirectory(run_directory)
    candidates = _candidates(run)
    wanted, notes = _wanted(run, which, candidates)
    order = [wanted] if wanted else []
    order += [name for name in reversed(candidates) if name != wanted]
    for name in order:
        if name not in candidates:
            notes.append(f"checkpoint {run.checkpoints / name} is missing")
            continue
        try:
            checkpoint = load_checkpoint(candidates[name])
        except CheckpointDamaged as error:
            notes.append(str(error))
            continue
        if notes:
            notes.append(f"using {checkpoint.path} instead")
        return checkpoint, notes
    raise NoCheckpoint("; ".join([f"{run.path} has no checkpoint that loads", *notes]))


def _candidates(run):
    """Returns {name: folder}, oldest first; one set aside has its real name."""
    found = {name: run.checkpoints / name for name in run.checkpoint_names()}
    if run.checkpoints.is_dir() and not run.checkpoints.is_symlink():
        for waiting in run.checkpoints.glob(f"{_REPLACED}step_*"):
            if STEP_NAME.fullmatch(_replaced_name(waiting)):
                found.setdefault(_replaced_name(waiting), waiting)
    return dict(sorted(found.items(), key=lambda item: int(item[0][5:])))


def _wanted(run, which, candidates):
    name = step_name(which) if isinstance(which, int) else which
    if STEP_NAME.fullmatch(name):
        if name not in candidates:
            there = ", ".join(candidates) or "none"
            raise NoCheckpoint(f"{run.path} has no checkpoint {name}; it has {there}")
        return name, []
    try:
        name = run.pointer(which)
    except UnreadableFile as error:
        return None, [f"{run.path}: {error}"]
    if name is None and candidates:
        return None, [f"{run.path} has no checkpoint marked {which}"]
    return name, []

"""What an inspection writes: PNG files, and images and numbers in the run's TensorBoard record."""

import importlib.util
import struct
from pathlib import Path

from gptcli.errors import RunError, UserError
from gptcli.training.files import atomic_write_bytes, free_space
from gptcli.training.lock import RunLock
from gptcli.training.tensorboard import EventFile

# Every PNG of an inspection has this near its start.
MARK = "gptcli inspect"
# Events of the run's own files from this step on would be hidden; no run comes that far.
_BEYOND_EVERY_STEP = 2**62


def checked_targets(png, tensorboard):
    """Returns what --png asks for as a Path, or None, before anything is computed.

    Raises:
        UserError: matplotlib is missing, the folder does not exist, or a file there is not an inspection.
    """
    if (png or tensorboard) and importlib.util.find_spec("matplotlib") is None:
        option = "--png" if png else "--tensorboard"
        raise UserError(f"{option} needs matplotlib; install it with: pip install 'gptcli[plots]'")
    if not png:
        return None
    path = Path(png)
    if path.suffix.lower() != ".png" or path.is_dir():
        if path.exists() and not path.is_dir():
            raise UserError(f"--png {path} is a file; name a folder, or a file that ends in .png")
        return path
    if not path.parent.is_dir():
        raise UserError(f"--png {path}: the folder {path.parent} does not exist")
    _check_replaceable(path)
    return path


def _check_replaceable(path):
    if not path.exists():
        return
    try:
        with path.open("rb") as file:
            start = file.read(4096)
    except OSError as error:
        raise UserError(f"--png {path} cannot be read: {error.strerror}") from error
    if start and MARK.encode() not in start:
        raise UserError(f"--png {path} exists and is not an inspection; choose another name or remove it")


def write_figures(target, facts):
    """Writes all figures into the one PNG or the folder that checked_targets returned, and returns the paths.

    Raises:
        UserError: a file in the folder is not an inspection.
        RunError: the folder cannot be made or written, or the disk is full.
    """
    if target is None:
        return []
    from gptcli.analysis.inspect_figures import one_page, separate_pages

    if target.suffix.lower() == ".png" and not target.is_dir():
        contents = {target: one_page(facts)}
    else:
        contents = {target / f"{name}.png": png for name, png in separate_pages(facts).items()}
    for path in contents:
        _check_replaceable(path)
    try:
        for path, png in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write_bytes(path, png)
    except OSError as error:
        raise RunError(
            f"{target} was not written: {error.strerror or error} ({free_space(target.parent)})"
        ) from error
    return list(contents)


def write_events(run_path, facts):
    """Writes figures and numbers under inspect/... at the checkpoint's step into a new event file; returns
    its path.

    Raises:
        UserError: the run is being trained, whose own event file must stay the newest.
        RunError: the file cannot be written.
    """
    from gptcli.analysis.inspect_figures import separate_pages

    failures = []
    with RunLock(run_path):
        try:
            events = EventFile(run_path, failures.append, _BEYOND_EVERY_STEP)
        except OSError as error:
            raise RunError(f"{run_path} cannot be written to ({error.strerror or error})") from error
        events.scalars(facts["step"], event_scalars(facts))
        for name, png in separate_pages(facts).items():
            events.image(facts["step"], f"inspect/{name}", png, *struct.unpack(">II", png[16:24]))
        events.close()
    if failures:
        raise RunError(failures[0])
    return events.path


def event_scalars(facts):
    """Returns {tag: number} of what an inspection measured; numbers that are not known are left out."""
    scalars = {}
    for part in facts["ablation"]:
        name = "/".join(f"{part[key]}" for key in ("part", "head") if part[key] is not None)
        scalars[f"inspect/worth/block_{part['block']}/{name}"] = part["difference"]
    for head in facts["attention"]["heads"] if facts["attention"] else []:
        for name in (key for key in head if key not in ("block", "head")):
            scalars[f"inspect/attention/block_{head['block']}/head_{head['head']}/{name}"] = head[name]
    for layer, groups in facts["gradient_norm"]["checkpoint"].items():
        for group, norm in groups.items():
            scalars[f"inspect/gradient_norm/{layer}/{group}"] = norm
    for name in ("residual_rms", "dead_relu_share"):
        scalars |= {f"inspect/{name}/{place}": value for place, value in facts[name]["checkpoint"].items()}
    scalars |= {f"inspect/loss_by_depth/{depth['after']}": depth["loss"] for depth in facts["loss_by_depth"]}
    return {tag: value for tag, value in scalars.items() if value is not None}

"""What a sweep leaves behind: sweep.json, sweep.csv and the table of its jobs, best first."""

import csv
import io
import math
import re

from gptcli.config import from_dict, to_dict
from gptcli.errors import RunError, UserError
from gptcli.sweep.jobs import STATUSES, Job
from gptcli.terminal import table
from gptcli.training.files import UnreadableFile, atomic_write_json, atomic_write_text, read_json

_FORMAT = 1
_SIZE_LIMIT = 2**28


def write_record(directory, jobs):
    """Writes sweep.json and sweep.csv of the jobs, best first in the CSV, each file complete or as it was."""
    rows = [
        {
            "number": job.number,
            "directory": job.name,
            "overrides": job.overrides,
            "varies": job.varies,
            "status": job.status,
            "reason": job.reason,
            **job.result,
            "config": to_dict(job.config) if job.config else None,
        }
        for job in jobs
    ]
    atomic_write_json(directory / "sweep.json", {"format": _FORMAT, "jobs": rows})
    atomic_write_text(directory / "sweep.csv", _csv(jobs))


def read_record(directory):
    """Returns the jobs that sweep.json holds.

    Raises:
        RunError: the file is no record of a sweep, or names a folder outside the sweep.
    """
    path = directory / "sweep.json"
    try:
        data = read_json(path, _SIZE_LIMIT)
        if data.get("format") != _FORMAT:
            raise ValueError(f"its format is {data.get('format')!r}, this version reads {_FORMAT}")
        jobs = [_job(row, directory) for row in data["jobs"]]
        if len({job.name for job in jobs}) != len(jobs):
            raise ValueError("two jobs have one folder")
        return jobs
    except KeyError as error:
        raise RunError(f"{path} is not the record of a sweep: it lacks {error}") from error
    except (ValueError, TypeError, AttributeError, UnreadableFile, UserError) as error:
        raise RunError(f"{path} is not the record of a sweep: {error}") from error


def _job(row, directory):
    name = row["directory"]
    if not re.fullmatch(r"[\w.+=,-]+", name) or name.startswith(".") or (directory / name).is_symlink():
        raise ValueError(f"{name!r} is not the name of a job's folder")
    job = Job(int(row["number"]), name, [str(one) for one in row["overrides"]], {})
    job.varies = {str(key): str(value) for key, value in row["varies"].items()}
    job.config = from_dict(row["config"]) if row["config"] else None
    if row["status"] not in STATUSES:
        raise ValueError(f"{row['status']!r} is not the status of a job")
    job.status, job.reason = row["status"], None if row["reason"] is None else str(row["reason"])
    job.result = numbers(row)
    return job


def numbers(row):
    """Returns the result of a job as its record or its run.json tells it: what is no finite number counts as none."""
    result = {key: row.get(key) for key in ("parameters", "val_loss", "seconds")}
    return {
        key: value if type(value) in (int, float) and math.isfinite(value) else None for key, value in result.items()
    }


def ranked(jobs):
    """Returns the jobs, best validation loss first, those without one last, in their own order."""

    def key(job):
        loss = job.result.get("val_loss")
        known = isinstance(loss, (int, float)) and math.isfinite(loss)
        return (0, loss, job.number) if known else (1, 0.0, job.number)

    return sorted(jobs, key=key)


def _csv(jobs):
    keys = varying_keys(jobs)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["rank", "job", *keys, "status", "parameters", "val_loss", "seconds", "directory", "reason"])
    for rank, job in enumerate(ranked(jobs), 1):
        values = [job.varies.get(key, "") for key in keys]
        result = [job.result.get(key, "") for key in ("parameters", "val_loss", "seconds")]
        writer.writerow([rank, job.number, *values, job.status, *result, job.name, job.reason or ""])
    return out.getvalue()


def varying_keys(jobs):
    """Returns the keys that vary over the sweep, in the order given."""
    return list(dict.fromkeys(key for job in jobs for key in job.varies))


def summary_lines(directory, jobs):
    """Returns the table at the end of a sweep."""
    keys = varying_keys(jobs)
    header = ["rank", *(key.split(".")[-1] for key in keys), "parameters", "val loss", "seconds", "run"]
    rows = []
    for rank, job in enumerate(ranked(jobs), 1):
        result, values = job.result, [job.varies.get(key, "") for key in keys]
        if not result or None in result.values():
            rows.append(["-", *values, "", job.status, "", job.name])
            continue
        loss = f"{result['val_loss']:.4f}"
        rows.append([rank, *values, f"{result['parameters']:,}", loss, f"{result['seconds']:.0f}", job.name])
    right = {0, *range(len(keys) + 1, len(keys) + 4)}
    finished = sum(job.status == "finished" for job in jobs)
    lines = table(rows, header, right)
    lines += [f"failed  {job.name}: {job.reason}" for job in jobs if job.status == "failed"]
    lines.append(f"{finished} of {len(jobs)} jobs finished; sweep.json and sweep.csv in {directory}")
    return lines

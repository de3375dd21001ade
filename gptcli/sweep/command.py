"""A sweep from its overrides, or from its directory, to its table."""

import secrets
import time
from multiprocessing.connection import wait
from pathlib import Path

from gptcli.composition import chosen_launcher, compose, sweep_directory_path
from gptcli.errors import UserError
from gptcli.sweep.jobs import compose_jobs
from gptcli.sweep.record import read_record, summary_lines, write_record
from gptcli.sweep.worker import Worker, collect_result, note_failure
from gptcli.terminal import printable
from gptcli.training.console import print_safely
from gptcli.training.files import atomic_write_text
from gptcli.training.interruption import Interruption
from gptcli.training.lock import RunLock


def run_sweep(overrides, config_directories=()):
    """Trains every combination that overrides name; returns the exit status."""
    jobs = compose_jobs(overrides, config_directories)
    plain = next(job for job in jobs if job.config)
    _, composed = compose(plain.overrides, config_directories=config_directories)
    ensemble = chosen_launcher(composed) == "ensemble"
    _preload([job.config for job in jobs if job.config])
    directory = _create_directory(Path(sweep_directory_path(composed)), overrides)
    atomic_write_text(directory / "multirun.yaml", plain.hydra_yaml)
    return _run(directory, jobs, ensemble)


def resume_sweep(directory):
    """Runs what a sweep lacks: jobs that are missing, interrupted or failed; returns the exit status."""
    jobs = read_record(directory)
    for job in jobs:
        path = directory / job.name
        if (path / "run.json").exists():
            collect_result(job, path)
        if job.status == "finished":
            continue
        if job.config is not None:
            job.status = "waiting"
            _make_resumable(path)
    _preload([job.config for job in jobs if job.status == "waiting"])
    kept = sum(job.status == "finished" for job in jobs)
    print_safely(f"{kept} of {len(jobs)} jobs are kept")
    return _run(directory, jobs, ensemble=False)


def _make_resumable(path):
    """Moves aside what a job left that failed before it had settings to go on with; nothing is deleted."""
    from gptcli.runs import Run

    if path.exists() and not (Run(path).info or {}).get("config"):
        path.rename(path.with_name(f"{path.name}.failed-{secrets.token_hex(2)}"))


def _preload(configs):
    """Reads each corpus once, before processes are forked, and says what is to say about it once."""
    from gptcli.data.corpus import load_corpus

    for data in dict.fromkeys(config.data for config in configs):
        for note in load_corpus(data).notes:
            print_safely(f"note  {printable(note)}")


def _create_directory(path, overrides):
    """Makes the sweep's folder; a default one that another sweep of the same second took gets an ending."""
    chosen = any(override.lstrip("+").startswith("hydra.sweep.dir=") for override in overrides)
    if (path / "sweep.json").exists() and chosen:
        raise UserError(f"{path} holds a sweep already; go on with it by gptcli resume, or name another folder")
    try:
        path.mkdir(parents=True, exist_ok=chosen)
        return path
    except FileExistsError:
        if chosen:
            raise UserError(f"{path} is a file, not a folder") from None
        other = path.with_name(f"{path.name}-{secrets.token_hex(2)}")
        other.mkdir(parents=True)
        return other
    except OSError as error:
        raise UserError(f"cannot make the folder {path}: {error.strerror}") from None


def _run(directory, jobs, ensemble):
    """Runs the waiting jobs and reports; returns 0, 1 when a job failed, or 128 + signal."""
    interruption = Interruption()
    with RunLock(directory), interruption.listening():
        for job in jobs:
            if job.config is None:
                note_failure(directory / job.name, job.reason)
                _report(job, jobs)
        write_record(directory, jobs)
        _run_waiting(directory, jobs, interruption, ensemble)
        write_record(directory, jobs)
    for line in summary_lines(directory, jobs):
        print_safely(printable(line))
    if interruption:
        print_safely(f"stopped by {interruption.name}; go on with: gptcli resume {directory}")
        return 128 + interruption.signal_number
    return 1 if any(job.status == "failed" for job in jobs) else 0


def _run_waiting(directory, jobs, interruption, ensemble):
    waiting = [job for job in jobs if job.status == "waiting"]
    if not waiting:
        return
    import gptcli.training.session  # noqa: F401  (imported before forking, so that jobs start at once)

    workers = _worker_count(waiting)
    groups = _groups(directory, waiting, workers, ensemble)
    stops = waiting[0].config.sweep.stop_on_failure
    running, told = [], False
    while (groups or running) and not (interruption and not running):
        failed = stops and any(job.status == "failed" for job in jobs)
        while groups and len(running) < workers and not interruption and not failed:
            group = groups.pop(0)
            for job in group:
                job.status = "running"
            running.append(Worker(group, directory, workers))
        if not running:
            return
        ended = wait([worker.sentinel for worker in running], timeout=0.5)
        for worker in [one for one in running if one.sentinel in ended]:
            worker.collect()
            running.remove(worker)
            write_record(directory, jobs)
            for job in worker.jobs:
                _report(job, jobs)
        if interruption and not told:
            told = True
            for worker in running:
                worker.stop()


def _groups(directory, waiting, workers, ensemble):
    """Returns lists of jobs that one process trains: new ones together in an ensemble, one alone otherwise."""
    if not ensemble:
        return [[job] for job in waiting]
    from gptcli.sweep.ensemble import group_jobs

    begun = [job for job in waiting if (directory / job.name / "run.json").exists()]
    return group_jobs([job for job in waiting if job not in begun], workers) + [[job] for job in begun]


def _worker_count(jobs):
    from gptcli.training.threads import jobs_at_once

    return max(1, min(len(jobs), jobs_at_once([job.config for job in jobs])))


def _report(job, jobs):
    """Prints one line as a job ends."""
    if job.status == "finished":
        what = f"val loss {job.result['val_loss']:.4f}   {job.result['seconds']:.0f} s"
    else:
        what = f"{job.status}: {job.reason}"
    ended = sum(one.status in ("finished", "failed", "interrupted") for one in jobs)
    print_safely(printable(f"{time.strftime('%H:%M:%S')}  {ended}/{len(jobs)}  {job.name}   {what}"))

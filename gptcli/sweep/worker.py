"""One job in a process of its own, so that nothing a job does can take the sweep with it."""

import multiprocessing
import os
import signal
import sys
import traceback

from gptcli.errors import RunError, UserError
from gptcli.sweep.record import numbers
from gptcli.terminal import printable
from gptcli.training.files import UnreadableFile, append_text, atomic_write_json, read_json

_STATUSES = ("finished", "interrupted", "failed")


class Worker:
    """A process that trains one job, or several as one, and what became of them.

    Args:
        directory: the sweep's.
        workers: processes that train at the same time.
    """

    def __init__(self, jobs, directory, workers):
        self.jobs, self.directory = jobs, directory
        # A forked child has torch and the corpus already; where that is not to be had, a fresh one imports them.
        forks = "fork" in multiprocessing.get_all_start_methods() and sys.platform != "darwin" and not _has_cuda()
        context = multiprocessing.get_context("fork" if forks else "spawn")
        self.process = context.Process(target=_train, args=(jobs, directory, workers, os.getpid()), daemon=True)
        self.process.start()

    @property
    def sentinel(self):
        """What multiprocessing.connection.wait waits for."""
        return self.process.sentinel

    def stop(self):
        """Asks the job to save and stop."""
        if self.process.is_alive():
            os.kill(self.process.pid, signal.SIGTERM)

    def collect(self):
        """Takes the outcome of an ended process into its jobs."""
        self.process.join()
        code = self.process.exitcode
        for job in self.jobs:
            path = self.directory / job.name
            if code is not None and code < 0:
                name = signal.Signals(-code).name
                hint = " (out of memory?)" if name == "SIGKILL" else ""
                note_failure(path, f"the process was ended by {name}{hint}", only_if_running=True)
            elif code:
                note_failure(path, f"the process ended with status {code}", only_if_running=True)
            collect_result(job, path)


def _has_cuda():
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_available()


def _train(jobs, directory, workers, parent):
    """Trains new jobs together, or resumes one; every outcome ends up in the runs' own directories."""
    from gptcli.training.interruption import JobInterruption
    from gptcli.training.session import Provenance, resume, train_new

    interruption = JobInterruption(parent)
    paths = [directory / job.name for job in jobs]
    try:
        if len(jobs) == 1 and (paths[0] / "run.json").exists():
            resume(paths[0], interruption, quiet=True, workers=workers)
        else:
            provenances = [
                Provenance(
                    job.overrides, job.settings_yaml, job.hydra_yaml, {"directory": directory.name, "job": job.number}
                )
                for job in jobs
            ]
            configs = [job.config for job in jobs]
            train_new(configs, paths, provenances, interruption, quiet=True, workers=workers)
    except BaseException as error:
        expected = isinstance(error, (UserError, RunError))
        reason = str(error) if expected else f"{type(error).__name__}: {error}"
        for path in paths:
            note_failure(path, reason, "" if expected else traceback.format_exc())
    sys.stdout.flush()
    os._exit(0)


def note_failure(path, reason, details="", only_if_running=False):
    """Writes why a job failed into its own run.json and train.log, made for it where it came to nothing."""
    path.mkdir(parents=True, exist_ok=True)
    info = _read(path / "run.json")
    if only_if_running and info.get("status") in _STATUSES:
        return
    atomic_write_json(path / "run.json", {**info, "status": "failed", "reason": reason})
    append_text(path / "train.log", f"failed: {printable(reason)}\n{printable(details, keep_newlines=True)}")


def collect_result(job, path):
    """Takes status, reason and result of a job from its run.json."""
    info = _read(path / "run.json")
    status = info.get("status")
    job.status = status if status in _STATUSES else "failed"
    job.reason = str(info.get("reason")) if job.status != "finished" else None
    loss = info.get("full_val_loss") if info.get("full_val_loss") is not None else info.get("val_loss")
    job.result = numbers({**info, "val_loss": loss})
    if job.status == "finished" and None in job.result.values():
        job.status, job.reason = "failed", f"its run.json lacks {', '.join(_lacking(job.result))}"


def _lacking(result):
    return [key for key, value in result.items() if value is None]


def _read(path):
    try:
        return read_json(path)
    except UnreadableFile:
        return {}

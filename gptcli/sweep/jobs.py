"""The jobs of a sweep: every combination of the listed values, each with a number, a name and a typed configuration."""

import re
from dataclasses import dataclass, field
from itertools import islice
from pathlib import PurePath

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, RangeSweep

from gptcli.composition import compose, prepare, provenance_yaml, sweep_parameters, translated_errors
from gptcli.errors import RunError, UserError
from gptcli.validation import validate, validate_batch

STATUSES = ("waiting", "running", "finished", "interrupted", "failed")
_NAME_LENGTH = 100
_MOST_JOBS = 10_000


@dataclass
class Job:
    """One run of a sweep.

    varies holds, for each key with several values, this job's value as text. config is None when the settings do not
    fit together; reason then says why. status is waiting, running, finished, interrupted or failed.
    """

    number: int
    name: str
    overrides: list
    varies: dict
    config: object = None
    settings_yaml: str = ""
    hydra_yaml: str = ""
    status: str = "waiting"
    reason: str | None = None
    result: dict = field(default_factory=dict)


def expand(overrides):
    """Returns one list of overrides for each job, and the keys that vary among them, in the order given.

    Of two overrides of one key, the later one counts, in the place of the first.

    Raises:
        UserError: a value asks for a random or continuous search, which needs another sweeper.
    """
    with translated_errors():
        parsed = OverridesParser.create().parse_overrides(overrides)
        parsed = list({override.get_key_element(): override for override in parsed}.values())
        for override in parsed:
            if override.is_sweep_override() and not override.is_discrete_sweep():
                raise UserError(
                    f"{override.input_line}: a sweep needs listed values, such as a,b,c, choice(a,b) or range(0,8)"
                )
        _check_number(parsed)
        (combinations,) = BasicSweeper.split_arguments(parsed, None)
    varying = [override.key_or_group for override in parsed if override.is_sweep_override()]
    return combinations, varying


def _check_number(parsed):
    """Refuses sweeps of no job, and those of so many that listing them would take all memory."""
    jobs = 1
    for override in parsed:
        if not override.is_sweep_override() or isinstance(override.value(), Glob):
            continue
        text = override.input_line
        if isinstance(override.value(), RangeSweep) and not override.value().step:
            raise UserError(f"{text}: the step of a range must not be 0")
        values = sum(1 for _ in islice(override.sweep_iterator(), _MOST_JOBS + 1))
        if not values:
            raise UserError(f"{text} names no value; a range goes from its start to below its end, as range(0,8)")
        jobs *= values
        if jobs > _MOST_JOBS:
            raise UserError(f"{text}: the sweep would have more than {_MOST_JOBS:,} jobs")


def compose_jobs(overrides, config_directories=()):
    """Returns the jobs of a sweep; one whose settings do not fit together is marked failed.

    What the configuration itself sweeps over, as a study does, comes before overrides, and yields to them.

    Raises:
        UserError: no job's settings are right; the first one's fault is named.
    """
    parameters = sweep_parameters(overrides, config_directories)
    overrides = [*prepare(parameters, multirun=True, config_directories=config_directories), *overrides]
    combinations, varying = expand(overrides)
    width = len(str(len(combinations) - 1))
    jobs = []
    for number, combination in enumerate(combinations):
        varies = _values(combination, varying)
        job = Job(number, job_name(number, width, varies), combination, varies)
        _compose(job, config_directories)
        jobs.append(job)
    if all(job.status == "failed" for job in jobs):
        raise UserError(jobs[0].reason)
    return jobs


def _compose(job, config_directories):
    try:
        config, composed = compose(job.overrides, config_directories=config_directories)
        validate(config)
        validate_batch(config)
    except (UserError, RunError) as error:
        job.status, job.reason = "failed", str(error)
        return
    job.config = config
    job.settings_yaml, job.hydra_yaml = provenance_yaml(composed)


def _values(combination, varying):
    values = {}
    for override in combination:
        key, _, value = override.lstrip("+").partition("=")
        if key in varying:
            values[key] = value.strip("'\"")
    return values


def job_name(number, width, varies):
    """Returns a folder name: the number and what varies, flat, short, and free of characters that need quoting."""
    parts = [f"{_short_key(key, varies)}={_short_value(value)}" for key, value in varies.items()]
    return "-".join([f"{number:0{width}d}", ",".join(parts)])[:_NAME_LENGTH].rstrip("-,.")


def _short_key(key, varies):
    last = re.split(r"[./]", key)[-1]
    shared = [other for other in varies if re.split(r"[./]", other)[-1] == last]
    return last if len(shared) == 1 else key.replace("/", ".")


def _short_value(value):
    text = PurePath(value).name if "/" in value or "\\" in value else value
    return re.sub(r"[^\w.+-]+", "_", text)[:40] or "_"

"""Jobs that can be trained as one batched model: the same shape, corpus and timetable, other seeds or rates."""

import dataclasses
import json

from gptcli.config import to_dict
from gptcli.training.threads import jobs_that_fit


def group_jobs(jobs, workers):
    """Returns the jobs in groups that train together, largest groups split over the workers and to fit the memory.

    A job that fits no other is a group of its own. The order of the jobs is kept within a group, and groups come in
    the order of their first jobs.
    """
    alike = {}
    for job in jobs:
        alike.setdefault(_shared_settings(job), []).append(job)
    groups = []
    for together in alike.values():
        fitting = max(1, min(jobs_that_fit([together[0].config]) // workers, -(-len(together) // workers)))
        size = 1 if not _can_be_stacked(together[0].config) else fitting
        groups += [together[first : first + size] for first in range(0, len(together), size)]
    return sorted(groups, key=lambda group: group[0].number)


def _shared_settings(job):
    """Returns, as text, everything that the jobs of a group must have in common."""
    config = job.config
    shared = dataclasses.replace(
        config,
        seed=0,
        optimizer=dataclasses.replace(config.optimizer, learning_rate=1.0, weight_decay=0.0, betas=(0.9, 0.999)),
        model=dataclasses.replace(config.model, dropout=0.5 if config.model.dropout else 0.0),
    )
    return json.dumps(to_dict(shared), sort_keys=True)


def _can_be_stacked(config):
    """The walkthrough's recipe draws dropout from one generator of the process, which members cannot share."""
    return not (config.recipe.name == "walkthrough" and config.model.dropout)

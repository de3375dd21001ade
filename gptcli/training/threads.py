"""How many threads a run uses, and how many jobs of a sweep run at once. Free of torch."""

import os
from pathlib import Path

from gptcli.model.parameters import parameter_count

# Starting and joining a thread costs about 20 microseconds; one pays from about ten times that in arithmetic,
# at the 50 to 100 GFLOP/s of one core.
_OPERATIONS_PER_THREAD = 2e7
# torch joins its threads after every operation, some 40 of them a block and step, and does it by spinning. On two idle
# cores a second thread may help or hurt at 6e7 operations a step, saves 30 % at 9e7 and 40 % from 2e8 on; beside another
# busy process it doubles the time, so the doubtful go without. The choice is not measured when a run starts: torch's sums
# depend on the number of threads in their last bits, and the same command is to give the same run.
_OPERATIONS_PER_MORE_TORCH_THREAD = 8e7
# A pass forward over one text, as it is generated or evaluated, has small operations only.
_OPERATIONS_PER_TORCH_THREAD_FORWARD = 1e9
# What a process needs before it holds a model: the interpreter, torch and a corpus.
_BYTES_PER_PROCESS = 500e6
_BYTES_PER_PARAMETER = 24  # weights, gradients, two moments, and copies while a checkpoint is written
_BYTES_PER_ACTIVATION = 4
# A vocabulary is small beside the blocks; a character corpus has about this many symbols.
_TYPICAL_VOCABULARY = 100


def choose_threads(setting, parameters, tokens_per_step, workers=1, kernels=True):
    """Returns the number of threads for a run and, in words, why.

    Args:
        setting: trainer.threads: auto or a number.
        parameters: of one model.
        tokens_per_step: of all models that are trained together.
        workers: processes that train on this machine at the same time; they share the cores.
        kernels: whether steps run in the project's kernels, whose threads join once a step, or in torch.
    """
    if setting != "auto":
        return int(setting), "set by trainer.threads"
    share = max(1, available_cores() // max(1, workers))
    operations = 6 * parameters * tokens_per_step
    if kernels:
        worth = max(1, int(operations / _OPERATIONS_PER_THREAD))
    else:
        worth = 1 + int(operations / _OPERATIONS_PER_MORE_TORCH_THREAD)
    if worth < share:
        return worth, f"a step of {tokens_per_step} tokens is too short for more"
    return share, "all cores" if workers == 1 else f"the cores are shared by {workers} jobs"


def threads_without_gradients(parameters, tokens):
    """Returns the threads for torch on forward passes over this many tokens at once."""
    return max(1, min(available_cores(), int(2 * parameters * tokens / _OPERATIONS_PER_TORCH_THREAD_FORWARD)))


def jobs_at_once(configs):
    """Returns how many jobs of a sweep run side by side: sweep.workers, or as many as cores and memory allow.

    Jobs on one thread each waste nothing at joining threads, so each is given one core.
    """
    first = configs[0]
    if first.sweep.workers != "auto":
        return first.sweep.workers
    if first.trainer.device not in ("auto", "cpu"):
        return 1
    return max(1, min(len(configs), available_cores(), jobs_that_fit(configs)))


def jobs_that_fit(configs):
    """Returns how many jobs, each like the largest of configs, the memory that is free now can hold."""
    most_memory = max(_bytes_needed(config) for config in configs)
    return max(1, int(_available_bytes() * 0.8 // most_memory))


def available_cores():
    """Returns the physical cores that this process may run on."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    cores = set()
    for number in os.sched_getaffinity(0):
        siblings = Path(f"/sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list")
        try:
            cores.add(siblings.read_text())
        except OSError:
            cores.add(str(number))
    return max(1, len(cores))


def _bytes_needed(config):
    model, tokens = config.model, config.trainer.batch_size * config.model.block_size
    width = model.embedding_dim or _TYPICAL_VOCABULARY
    # Per token and layer: about 20 vectors of the width, and the attention weights before and after dropout.
    per_token = model.num_layers * (20 * width + 3 * model.num_heads * model.block_size) + 4 * width
    activations = min(tokens, 2**19 // width + model.block_size) * per_token * _BYTES_PER_ACTIVATION
    parameters = parameter_count(model, _TYPICAL_VOCABULARY) * _BYTES_PER_PARAMETER
    return _BYTES_PER_PROCESS + parameters + activations


def _available_bytes():
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return 8e9

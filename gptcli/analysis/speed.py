"""Training speed of a configuration on this machine, against the machine's own matrix product rate."""

import dataclasses
import statistics
import sys
import time

import torch

from gptcli.analysis.flops import flops_per_token
from gptcli.model.parameters import parameter_count
from gptcli.training.batches import TrainingBatches
from gptcli.training.evaluation import FixedWindows
from gptcli.training.workplace import build, prepare

_MATRIX = 1024
_EVALUATION_TOKENS = 25_600


def measure_speed(config, seconds, members, chunks):
    """Returns the facts of a benchmark as plain data; times are per step of all members together.

    Args:
        members: models of seeds config.seed, config.seed + 1, ... that are trained as one.
        chunks: parts that the measured time is cut into; the median over them is the figure to quote.
    """
    configs = [dataclasses.replace(config, seed=config.seed + member) for member in range(members)]
    workplace = prepare(configs)
    engine = build(configs, workplace)
    per_step = _step_seconds(configs, engine, workplace.corpus, seconds, chunks)
    median = statistics.median(per_step)
    tokens = config.trainer.batch_size * config.model.block_size * members
    flops = flops_per_token(config.model, workplace.corpus.tokenizer.vocabulary_size) * tokens
    rate = matmul_rate(workplace.device, workplace.precision, workplace.threads)
    return {
        "stage": config.stage.name,
        "parameters": parameter_count(config.model, workplace.corpus.tokenizer.vocabulary_size),
        "members": members,
        "where": workplace.words,
        "precision": workplace.precision,
        "threads": workplace.threads,
        "compiled": workplace.compiled,
        "milliseconds_per_step": {
            "median": median * 1e3,
            "minimum": min(per_step) * 1e3,
            "maximum": max(per_step) * 1e3,
        },
        "tokens_per_second": tokens / median,
        "evaluation_tokens_per_second": _evaluation_rate(config, engine, workplace.corpus),
        "gflops_per_second": flops / median / 1e9,
        "matmul_gflops_per_second": rate / 1e9,
        "share_of_matmul_rate": flops / median / rate,
        "peak_memory_bytes": peak_memory(workplace.device),
    }


def _step_seconds(configs, engine, corpus, seconds, chunks):
    """Returns the mean time of a step in each chunk, in seconds, after a warm-up."""
    settings, block_size = configs[0].trainer, configs[0].model.block_size
    batches = [TrainingBatches(corpus.train, block_size, settings.batch_size, config.seed) for config in configs]
    rates = [config.optimizer.learning_rate for config in configs]
    done = 0

    def steps(count):
        nonlocal done
        started = time.perf_counter()
        drawn = [one.draw(done, count) for one in batches]
        x, y = (torch.stack(parts).to(engine.device) for parts in zip(*drawn, strict=True))
        for index in range(count):
            engine.step(x[:, index], y[:, index], rates)
        synchronize(engine.device)
        done += count
        return (time.perf_counter() - started) / count

    steps(1)
    warm = min(steps(2), steps(2))
    count = max(1, min(batches[0].steps_at_once, int(seconds / chunks / warm)))
    return [steps(count) for _ in range(chunks)]


def _evaluation_rate(config, engine, corpus):
    windows = FixedWindows(corpus, config.model.block_size, _EVALUATION_TOKENS)
    x, y = windows.draw("validation")
    engine.evaluate(x[:8], y[:8])
    synchronize(engine.device)
    started = time.perf_counter()
    engine.evaluate(x, y)
    synchronize(engine.device)
    return x.numel() * len(engine.models) / (time.perf_counter() - started)


def matmul_rate(device, precision, threads):
    """Returns torch's best rate of a square matrix product in operations a second, 2 n^3 each."""
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    a, b = (torch.randn(_MATRIX, _MATRIX, device=device).to(dtype) for _ in range(2))
    threads_before, best = torch.get_num_threads(), float("inf")
    torch.set_num_threads(threads)  # an engine of the project's kernels has left torch with one
    for _ in range(12):
        synchronize(device)
        started = time.perf_counter()
        a @ b
        synchronize(device)
        best = min(best, time.perf_counter() - started)
    torch.set_num_threads(threads_before)
    return 2 * _MATRIX**3 / best


def synchronize(device):
    """Waits for a GPU's queued work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak_memory(device):
    """Returns the most memory that this process has held, in bytes: on a GPU the GPU's, elsewhere the process's."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        import resource
    except ImportError:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

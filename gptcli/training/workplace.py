"""What runs that are trained together share: the corpus, the device, and how steps are run."""

import contextlib
from dataclasses import dataclass

import torch

from gptcli.data.corpus import load_corpus
from gptcli.data.windows import check_split_lengths
from gptcli.errors import RunError
from gptcli.model.gpt import GPT
from gptcli.model.parameters import parameter_count
from gptcli.training.compile_choice import choose_compile
from gptcli.training.device import choose_device, choose_precision
from gptcli.training.engine import build_engine, why_not_natively
from gptcli.training.threads import choose_threads
from gptcli.validation import validate, validate_batch, validate_size


@dataclass(frozen=True)
class Workplace:
    """Checked settings turned into places and choices; nothing is on disk yet."""

    corpus: object
    device: torch.device
    precision: str
    threads: int
    compiled: bool
    reasons: tuple[str, ...]

    @property
    def words(self):
        """Device, threads and precision, as a person reads them."""
        threads = f", {self.threads} thread{'s' if self.threads > 1 else ''}" if self.device.type == "cpu" else ""
        return f"{self.device}{threads}, {self.precision}{', compiled' if self.compiled else ''}"


def prepare(configs, *, workers=1):
    """Returns the Workplace of runs that share a corpus and a shape.

    Args:
        workers: processes that train on this machine at the same time.
    Raises:
        UserError: a setting is wrong, or asks for what this machine or corpus does not have.
        RunError: the corpus cannot be read or downloaded.
    """
    for config in configs:
        validate(config)
        validate_batch(config)
    first = configs[0]
    device = choose_device(first.trainer.device)
    precision = choose_precision(first.trainer.precision, device)
    corpus = load_corpus(first.data)
    check_split_lengths(len(corpus.train), len(corpus.validation), first.model.block_size)
    vocabulary_size = corpus.tokenizer.vocabulary_size
    validate_size(first.model, vocabulary_size)
    parameters = parameter_count(first.model, vocabulary_size)
    tokens_per_step = first.trainer.batch_size * first.model.block_size * len(configs)
    compiled, reason = choose_compile(first, device, vocabulary_size, members=len(configs))
    has_seeds = first.recipe.name != "walkthrough"
    kernels = compiled and why_not_natively(first.model, vocabulary_size, precision, device, has_seeds) is None
    threads, _ = choose_threads(first.trainer.threads, parameters, tokens_per_step, workers, kernels)
    torch.set_num_threads(threads)
    return Workplace(corpus, device, precision, threads, compiled, (reason,) if reason else ())


def build(configs, workplace):
    """Returns the Engine with one freshly initialized model for each config.

    Raises:
        RunError: the memory does not suffice.
    """
    with enough_memory():
        models = [build_model(config, workplace.corpus.tokenizer.vocabulary_size) for config in configs]
        return build_engine(
            models,
            optimizers=[config.optimizer for config in configs],
            grad_clip=configs[0].trainer.grad_clip,
            precision=workplace.precision,
            compile=workplace.compiled,
            device=workplace.device,
            # The walkthrough's step files draw dropout masks from torch's one generator.
            seeds=None if configs[0].recipe.name == "walkthrough" else [config.seed for config in configs],
        )


@contextlib.contextmanager
def enough_memory():
    """Turns each way in which Python, numpy and torch say that memory has run out into a RunError."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        known = isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "t allocate memory" in str(error)
        if not known:
            raise
        raise RunError("not enough memory; make the model or trainer.batch_size smaller") from error


def build_model(config, vocabulary_size):
    """Returns the GPT of a Config with the initial values that its seed draws."""
    torch.manual_seed(config.seed)
    by_head = config.recipe.name == "walkthrough" and config.model.dropout_placement == "everywhere"
    return GPT(config.model, vocabulary_size, dropout_by_head=by_head)

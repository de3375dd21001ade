"""Text from a model: one symbol after the other, each drawn from the model's distribution over the next."""

import math
from dataclasses import dataclass

import torch

from gptcli.errors import UserError
from gptcli.model.cache import empty_caches


@dataclass(frozen=True)
class Sampling:
    """How the next symbol is drawn.

    temperature divides the logits; 0 takes the most probable symbol. top_k keeps the k most probable symbols, 0 keeps
    all. top_p keeps the fewest most probable symbols that together have at least this probability (Holtzman et al.,
    2020, section 3.1).
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self):
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise UserError(f"temperature {self.temperature} must be 0 (always the most probable symbol) or above")
        if self.top_k < 0:
            raise UserError(f"top-k {self.top_k} must be 0 (off) or above")
        if not 0 < self.top_p <= 1:
            raise UserError(f"top-p {self.top_p} must be above 0 and at most 1")


@torch.inference_mode()
def generate(model, prompt, tokens, sampling, seeds, *, cached=True):
    """Yields the next symbol of each row, (row,), tokens times.

    A row is one continuation of prompt; its random numbers depend on its own seed alone, so a text does not change
    with the number of texts drawn beside it. The context is the last block_size symbols. While the text fits into the
    context, earlier positions' keys and values are reused; past it every symbol's position moves with each new one, so
    learned positions make them stale and the window is computed anew.

    Args:
        prompt: list of symbol ids, at least one.
        seeds: one whole number a row.
    Raises:
        UserError: the model puts out values that are not finite.
    """
    was_training = model.training
    model.eval()
    device = model.token_embedding.weight.device
    uniform = torch.stack([_uniform(tokens, seed) for seed in seeds]).to(device)  # (row, tokens)
    text = torch.tensor([prompt[-model.config.block_size :]] * len(seeds), device=device)  # (row, time)
    reader = _Reader(model, len(seeds), cached)
    for index in range(tokens):
        symbols = draw(reader.next_logits(text), sampling, uniform[:, index])
        text = torch.cat((text, symbols[:, None]), dim=1)[:, -model.config.block_size - 1 :]
        yield symbols
    model.train(was_training)


def _uniform(tokens, seed):
    return torch.rand(tokens, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class _Reader:
    """Computes the logits after the newest symbol, through caches as long as they hold."""

    def __init__(self, model, rows, cached):
        self.model = model
        uses_cache = cached and model.config.attention != "none"
        self.caches = empty_caches(model, rows) if uses_cache else None
        self.read = 0

    def next_logits(self, text):
        """Returns the logits (row, vocabulary) of the symbol after text (row, time)."""
        block_size = self.model.config.block_size
        if self.caches and text.shape[1] <= block_size and self.read < block_size:
            logits = self.model(text[:, self.read :], self.caches)
            self.read = text.shape[1]
            return logits[:, -1]
        return self.model(text[:, -block_size:])[:, -1]


def draw(logits, sampling, uniform):
    """Returns one symbol a row, by inverting the cumulative distribution at uniform.

    Args:
        logits: (row, vocabulary).
        uniform: (row,) numbers in [0, 1).
    """
    if not torch.isfinite(logits).all():
        raise UserError("the model puts out values that are not finite; it cannot be sampled from")
    if sampling.temperature == 0:
        return logits.argmax(-1)
    probabilities = kept_probabilities(logits.double(), sampling)
    cumulative = probabilities.cumsum(-1)
    target = uniform[:, None] * cumulative[:, -1:]
    symbols = torch.searchsorted(cumulative, target, right=True)[:, 0]
    return symbols.clamp_max(logits.shape[-1] - 1)


def kept_probabilities(logits, sampling):
    """Returns the probabilities (row, vocabulary) that temperature, top-k and top-p leave, not normalized anew.

    Ties at the border of top-k are resolved towards the lower id, so exactly k symbols are kept.
    """
    scaled = (logits - logits.amax(-1, keepdim=True)) / sampling.temperature
    probabilities = scaled.softmax(-1)
    if sampling.top_k == 0 and sampling.top_p == 1:
        return probabilities
    ordered, ids = probabilities.sort(dim=-1, descending=True, stable=True)
    if 0 < sampling.top_k < logits.shape[-1]:
        ordered[:, sampling.top_k :] = 0
        ordered = ordered / ordered.sum(-1, keepdim=True)
    before = ordered.cumsum(-1) - ordered
    ordered = ordered.masked_fill(before >= sampling.top_p, 0)
    return torch.zeros_like(probabilities).scatter(-1, ids, ordered)

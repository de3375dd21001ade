"""Text from a model: one symbol after the other, each drawn from the model's distribution over the next."""

import math
from dataclasses import dataclass

import torch

from gptcli.errors import UserError
from gptcli.model.cache import empty_caches, newest_logits


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


# Up to this context a whole window costs hardly more than its newest symbol, so prompts of any lengths go side by side.
_SHORT_CONTEXT = 32


@torch.inference_mode()
def generate(model, prompts, tokens, sampling, seeds, *, cached=True):
    """Yields the next symbol of each row, (row,), tokens times.

    A row continues its own prompt with random numbers of its own seed, so a text does not change with the texts drawn
    beside it. The context is the last block_size symbols. While a text fits into the context, earlier positions' keys
    and values are reused; past it every symbol's position moves with each new one, so learned positions make them stale
    and the window is computed anew, in the last block only as far as the newest symbol needs.

    Args:
        prompts: one list of symbol ids a row, none empty; of one length where the model's context is long.
        seeds: one whole number a row.
    Raises:
        UserError: the model puts out values that are not finite.
    """
    was_training = model.training
    model.eval()
    device, block_size = model.token_embedding.weight.device, model.config.block_size
    uniform = torch.stack([_uniform(tokens, seed) for seed in seeds]).to(device)  # (row, tokens)
    windows = _Windows([prompt[-block_size:] for prompt in prompts], block_size, device)
    reader = _Reader(model, windows, cached and model.config.context_length > _SHORT_CONTEXT)
    for index in range(tokens):
        symbols = draw(reader.next_logits(), sampling, uniform[:, index])
        windows.add(symbols)
        yield symbols
    model.train(was_training)


def continuations(model, prompts, tokens, sampling, seeds):
    """Returns the tokens symbols that follow each prompt, list of list; prompts may have any lengths."""
    if not prompts:
        return []
    if model.config.block_size <= _SHORT_CONTEXT or len({len(prompt) for prompt in prompts}) == 1:
        return torch.stack(list(generate(model, prompts, tokens, sampling, seeds)), 1).tolist()
    rows = zip(prompts, seeds, strict=True)
    return [continuations(model, [prompt], tokens, sampling, [seed])[0] for prompt, seed in rows]


def _uniform(tokens, seed):
    return torch.rand(tokens, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class _Windows:
    """The newest block_size symbols of each row, from the left; what stands right of a row's end is not looked at."""

    def __init__(self, prompts, block_size, device):
        self.block_size = block_size
        self.symbols = torch.zeros(len(prompts), block_size, dtype=torch.long, device=device)
        for row, prompt in enumerate(prompts):
            self.symbols[row, : len(prompt)] = torch.tensor(prompt, device=device)
        self.lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)
        self.rows = torch.arange(len(prompts), device=device)
        self.longest = int(self.lengths.max())
        self.full = False  # whether an earlier symbol of some row has had to go

    def add(self, symbols):
        """Adds one symbol to each row."""
        overfull = self.lengths == self.block_size
        if self.longest == self.block_size:
            self.full = True
            self.symbols = torch.where(overfull[:, None], self.symbols.roll(-1, 1), self.symbols)
        self.lengths = (self.lengths + 1).clamp_max(self.block_size)
        self.symbols[self.rows, self.lengths - 1] = symbols
        self.longest = min(self.longest + 1, self.block_size)


class _Reader:
    """Computes the logits after each row's newest symbol, through caches as long as they hold."""

    def __init__(self, model, windows, cached):
        self.model, self.windows = model, windows
        self.trimmed = cached and bool((windows.lengths == windows.longest).all())
        self.caches = empty_caches(model, len(windows.rows)) if self.trimmed else None
        self.read = 0

    def next_logits(self):
        """Returns the logits (row, vocabulary) of the symbol after each row."""
        windows = self.windows
        if self.caches and not windows.full:
            logits = self.model(windows.symbols[:, self.read : windows.longest], self.caches)[:, -1]
            self.read = windows.longest
            return logits
        if self.trimmed:
            return newest_logits(self.model, windows.symbols)
        logits = self.model(windows.symbols[:, : windows.longest])
        return logits[windows.rows, windows.lengths - 1]


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

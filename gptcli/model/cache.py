"""Keys and values of earlier positions, kept so that a new position attends to them without computing them again."""

import torch
from torch.nn import functional as F


class LayerCache:
    """The keys and values of one block for the positions so far.

    Args:
        like: a tensor with the device and dtype to use.
    """

    def __init__(self, rows, num_heads, block_size, head_size, like):
        shape = (2, rows, num_heads, block_size, head_size)
        self.stored = torch.empty(shape, device=like.device, dtype=like.dtype)
        self.length = 0

    def attend(self, query, key, value):
        """Stores key and value and returns query's attention over all positions so far.

        All arguments are (row, head, time, head_size); a time above 1 is only possible on an empty cache.
        """
        time = key.shape[2]
        if time > 1 and self.length:
            raise ValueError("several positions at once can only start a cache")
        self.keep(key, value)
        keys, values = self.stored[:, :, :, : self.length]
        return F.scaled_dot_product_attention(query, keys, values, is_causal=time > 1)

    def keep(self, key, value):
        """Stores key and value (row, head, time, head_size) after those so far."""
        end = self.length + key.shape[2]
        self.stored[0, :, :, self.length : end] = key
        self.stored[1, :, :, self.length : end] = value
        self.length = end


def empty_caches(model, rows):
    """Returns one empty LayerCache for each block of a GPT with attention."""
    return [_empty_cache(model, rows) for _ in range(model.config.num_layers)]


def _empty_cache(model, rows):
    config, weight = model.config, model.token_embedding.weight
    head_size = weight.shape[1] // config.num_heads
    return LayerCache(rows, config.num_heads, config.block_size, head_size, weight)


def newest_logits(model, tokens):
    """Returns the logits (batch, vocabulary) after the last of tokens (batch, time), of a GPT with attention.

    Its last block computes keys and values of all positions, and everything else of the newest one alone.
    """
    *earlier, last = model.blocks
    x = model.embed(tokens)
    for block in earlier:
        x = block(x)
    cache = _empty_cache(model, len(tokens))
    if x.shape[1] > 1:
        last.keep(x[:, :-1], cache)
    return model.lm_head(model.final_norm(last(x[:, -1:], cache)))[:, -1]

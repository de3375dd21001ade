"""Position information, added to the token embedding: learned (GPT-2) or sinusoidal (Vaswani et al., 2017)."""

import torch
from torch import nn


class LearnedPosition(nn.Module):
    """One learned vector for each place in the context."""

    def __init__(self, block_size, embedding_dim):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(block_size, embedding_dim))
        nn.init.normal_(self.weight)

    def forward(self, time, offset=0):
        """Returns the vectors (time, embedding) of the positions offset..offset + time - 1."""
        return _rows(self.weight, time, offset)


class SinusoidalPosition(nn.Module):
    """Fixed sines and cosines of geometrically spaced wavelengths (Vaswani et al., 2017, section 3.5)."""

    def __init__(self, block_size, embedding_dim):
        super().__init__()
        self.register_buffer("table", sinusoidal_table(block_size, embedding_dim), persistent=False)

    def forward(self, time, offset=0):
        """Returns the vectors (time, embedding) of the positions offset..offset + time - 1."""
        return _rows(self.table, time, offset)


def _rows(table, time, offset):
    # A slice is cheaper than the gather that the modulo needs once the text runs past the context.
    if offset + time <= len(table):
        return table[offset : offset + time]
    return table[torch.arange(offset, offset + time, device=table.device) % len(table)]


def sinusoidal_table(block_size, embedding_dim):
    """Returns (block_size, embedding): PE(p, 2i) = sin(p / 10000^(2i/d)), PE(p, 2i+1) = cos(p / 10000^(2i/d))."""
    position = torch.arange(block_size, dtype=torch.float64)[:, None]
    even_feature = torch.arange(0, embedding_dim, 2, dtype=torch.float64)
    angle = position / 10000 ** (even_feature / embedding_dim)
    table = torch.zeros(block_size, embedding_dim, dtype=torch.float64)
    table[:, 0::2] = angle.sin()
    table[:, 1::2] = angle.cos()[:, : embedding_dim // 2]
    return table.float()


def build_position(name, block_size, embedding_dim):
    """Returns the module called name, or None for "none"."""
    classes = {"none": lambda *_: None, "learned": LearnedPosition, "sinusoidal": SinusoidalPosition}
    return classes[name](block_size, embedding_dim)

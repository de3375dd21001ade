"""The position-wise feed-forward layer."""

from torch import nn
from torch.nn import functional as F


class ReLUFeedForward(nn.Module):
    """max(0, x W1 + b1) W2 + b2 with an inner layer four times wider (Vaswani et al., 2017, equation 2)."""

    def __init__(self, embedding_dim, dropout):
        super().__init__()
        self.expand = nn.Linear(embedding_dim, 4 * embedding_dim)
        self.contract = nn.Linear(4 * embedding_dim, embedding_dim)
        self.dropout = dropout

    def forward(self, x):
        """Maps (batch, time, embedding) to the same shape, each position by itself."""
        hidden = F.relu(self.expand(x))  # (batch, time, 4 * embedding)
        return self.contract(F.dropout(hidden, self.dropout, self.training))


def build_feed_forward(name, embedding_dim, dropout):
    """Returns the module called name, or None for "none"."""
    return None if name == "none" else {"relu": ReLUFeedForward}[name](embedding_dim, dropout)

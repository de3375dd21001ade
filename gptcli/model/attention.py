"""Causal self-attention: one head as wide as the embedding, or several heads and a projection."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class CausalSelfAttention(nn.Module):
    """Scaled dot-product attention over the past (Vaswani et al., 2017, sections 3.2.1 and 3.2.2).

    All heads' queries, keys and values come from one matrix qkv.weight (3 * embedding, embedding): the rows of all
    queries, then all keys, then all values, and within each the heads one after the other.

    Args:
        projection: whether the concatenated heads are mixed by a linear layer with a bias.
        dropout: rate on the attention weights and on the projection's output.
        dropout_by_head: draw the masks of the attention weights head by head, in the order in which separate heads
            would; slower, and needed only to repeat the random numbers of a model written that way.
    """

    def __init__(self, embedding_dim, num_heads, projection, dropout=0.0, dropout_by_head=False):
        super().__init__()
        self.num_heads = num_heads
        self.head_size = embedding_dim // num_heads
        self.dropout = dropout
        self.dropout_by_head = dropout_by_head
        self.qkv = FusedProjection(embedding_dim, num_heads)
        self.projection = nn.Linear(embedding_dim, embedding_dim) if projection else None

    def forward(self, x, cache=None):
        """Maps (batch, time, embedding) to the same shape; position t sees positions 0..t.

        Args:
            cache: a LayerCache that holds the keys and values of earlier positions and takes those of x.
        """
        query, key, value = self.heads(x)  # each (batch, head, time, head_size)
        if cache is None:
            mixed = self._attend(query, key, value)
        else:
            mixed = cache.attend(query, key, value)
        out = mixed.transpose(1, 2).reshape(x.shape)  # the heads side by side: (batch, time, embedding)
        if self.projection is None:
            return out
        return F.dropout(self.projection(out), self.dropout, self.training)

    def keep(self, x, cache):
        """Puts the keys and values of x (batch, time, embedding) into an empty cache; nothing attends."""
        batch, time, width = x.shape
        pairs = F.linear(x, self.qkv.weight[width:]).view(batch, time, 2, self.num_heads, self.head_size)
        cache.keep(*pairs.permute(2, 0, 3, 1, 4).unbind(0))

    def heads(self, x):
        """Returns query, key and value of x (batch, time, embedding), each (batch, head, time, head_size)."""
        batch, time, _ = x.shape
        qkv = self.qkv(x).view(batch, time, 3, self.num_heads, self.head_size)
        return qkv.permute(2, 0, 3, 1, 4).unbind(0)

    def weights(self, x):
        """Returns the attention weights (batch, head, time, time) on x: rows sum to 1, nothing above the diagonal."""
        query, key, _ = self.heads(x)
        return attention_weights(query, key)

    def _attend(self, query, key, value):
        dropout = self.dropout if self.training else 0.0
        if dropout == 0.0:
            return F.scaled_dot_product_attention(query, key, value, is_causal=True)
        weights = attention_weights(query, key)
        if self.dropout_by_head:
            weights = torch.stack([F.dropout(head, dropout) for head in weights.unbind(1)], dim=1)
        else:
            weights = F.dropout(weights, dropout)
        return weights @ value


def attention_weights(query, key):
    """Returns softmax(query key^T / sqrt(head_size)) over the past, (..., time, time).

    The future is masked with minus infinity, not with a large number, so that no weight can leak however large the
    scores are. The last query row belongs to the last key.
    """
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(
        1 + scores.shape[-1] - scores.shape[-2]
    )
    return scores.masked_fill(future, float("-inf")).softmax(-1)


class FusedProjection(nn.Module):
    """The query, key and value matrices of all heads as one matrix without a bias."""

    def __init__(self, embedding_dim, num_heads):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(3 * embedding_dim, embedding_dim))
        # Drawn head by head, query, key, value, as separate nn.Linear layers would be, so that a seed gives the
        # same function whether the heads are fused or not.
        for head in self.weight.detach().view(3, num_heads, -1, embedding_dim).unbind(1):
            for matrix in head.unbind(0):
                nn.init.kaiming_uniform_(matrix, a=math.sqrt(5))

    def forward(self, x):
        """Maps (batch, time, embedding) to (batch, time, 3 * embedding)."""
        return F.linear(x, self.weight)


def build_attention(name, embedding_dim, num_heads, dropout, dropout_by_head):
    """Returns the module called name, or None for "none"."""
    if name == "none":
        return None
    projection = {"single_head": False, "multi_head": True}[name]
    return CausalSelfAttention(embedding_dim, num_heads, projection, dropout, dropout_by_head)

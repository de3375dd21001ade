"""Attention against loops over every head, query and key."""

import math

import pytest
import torch
from torch.nn import functional as F

from gptcli.model.attention import CausalSelfAttention, attention_weights


def _dot(a, b):
    return sum(float(x) * float(y) for x, y in zip(a, b, strict=True))


def _naive_head(x, query_matrix, key_matrix, value_matrix):
    """One causal head on x (time, embedding), number by number; returns (time, head_size) as nested lists."""
    queries, keys, values = (
        [[_dot(row, position) for row in matrix] for position in x]
        for matrix in (query_matrix, key_matrix, value_matrix)
    )
    out = []
    for time, query in enumerate(queries):
        scores = [_dot(query, keys[past]) / math.sqrt(len(query)) for past in range(time + 1)]
        largest = max(scores)
        exponentials = [math.exp(score - largest) for score in scores]
        weights = [one / sum(exponentials) for one in exponentials]
        out.append([
            sum(weight * values[past][feature] for past, weight in enumerate(weights))
            for feature in range(len(query))
        ])  # fmt: skip
    return out


def _matrices(attention, head):
    """A head's query, key and value matrix (head_size, embedding), by the documented layout of qkv."""
    width, size = attention.qkv.weight.shape[1], attention.head_size
    return [
        attention.qkv.weight.detach()[kind * width + head * size : kind * width + (head + 1) * size]
        for kind in range(3)
    ]


@pytest.mark.parametrize(("width", "heads"), [(6, 1), (6, 2), (6, 3), (6, 6), (5, 1), (1, 1)])
@pytest.mark.parametrize("projection", [False, True])
def test_equals_loops_over_heads_queries_and_keys(width, heads, projection):
    torch.manual_seed(width * 10 + heads)
    attention = CausalSelfAttention(width, heads, projection).eval()
    x = torch.randn(2, 4, width)
    for row in range(len(x)):
        by_head = [torch.tensor(_naive_head(x[row], *_matrices(attention, head))) for head in range(heads)]
        expected = torch.cat(by_head, dim=1)
        if projection:
            expected = expected @ attention.projection.weight.T + attention.projection.bias
        torch.testing.assert_close(attention(x)[row], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("head_size", [1, 3, 16])
def test_a_head_narrower_than_the_width_is_scaled_by_its_own_size(head_size):
    """Not by the embedding's width: ng-video-lecture's mistake, invisible while the two are equal."""
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, 5, head_size) for _ in range(3))
    expected = F.scaled_dot_product_attention(query, key, value, is_causal=True)
    torch.testing.assert_close(attention_weights(query, key) @ value, expected)
    time = 4
    scores = [_dot(query[0, time], key[0, past]) / math.sqrt(head_size) for past in range(time + 1)]
    weights = [math.exp(score) / sum(map(math.exp, scores)) for score in scores]
    torch.testing.assert_close(attention_weights(query, key)[0, time], torch.tensor(weights))


@pytest.mark.parametrize("heads", [1, 2, 8])
def test_weights_are_a_distribution_over_the_past(heads):
    torch.manual_seed(1)
    weights = CausalSelfAttention(8, heads, True).weights(torch.randn(3, 6, 8) * 10)
    assert weights.shape == (3, heads, 6, 6)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, heads, 6))
    assert torch.equal(weights.triu(1), torch.zeros_like(weights))
    assert torch.equal(weights[:, :, 0, 0], torch.ones(3, heads))


@pytest.mark.parametrize("dropout", [0.0, 1e-9])
def test_large_weights_do_not_leak(dropout):
    """Masked scores are minus infinity: with scores of 1e6 a mask of -1e4 would let the future through.

    A dropout rate that drops nothing makes training take the path that computes the weights.
    """
    torch.manual_seed(2)
    attention = CausalSelfAttention(4, 2, False, dropout).train()
    with torch.no_grad():
        attention.qkv.weight.mul_(1e3)
        x = torch.randn(1, 6, 4)
        changed = x.clone()
        changed[:, 3:] = torch.randn(1, 3, 4) * 100
        assert torch.equal(attention(x)[:, :3], attention(changed)[:, :3])
        assert not torch.equal(attention(x)[:, 3:], attention(changed)[:, 3:])


def test_one_query_against_many_keys_is_the_last_row():
    torch.manual_seed(3)
    query, key = torch.randn(5, 4), torch.randn(5, 4)
    torch.testing.assert_close(attention_weights(query[-1:], key), attention_weights(query, key)[-1:])


def test_dropout_by_head_draws_as_separate_heads_do():
    """The step files have one nn.Dropout in each head, so masks come head by head and not row by row."""
    attention = CausalSelfAttention(6, 3, False, dropout=0.5, dropout_by_head=True).train()
    x = torch.randn(4, 5, 6)
    torch.manual_seed(11)
    out = attention(x)
    torch.manual_seed(11)
    heads = []
    for head in range(3):
        query, key, value = (x @ matrix.T for matrix in _matrices(attention, head))
        scores = query @ key.transpose(1, 2) / math.sqrt(2)
        scores = scores.masked_fill(torch.ones(5, 5).triu(1) == 1, -math.inf)
        heads.append(torch.nn.Dropout(0.5)(scores.softmax(-1)) @ value)
    torch.testing.assert_close(out, torch.cat(heads, dim=-1))


def test_dropout_is_off_in_evaluation_and_scales_in_training():
    torch.manual_seed(4)
    attention = CausalSelfAttention(4, 1, False, dropout=0.5)
    x = torch.randn(1, 3, 4)
    without = attention.eval()(x)
    assert torch.equal(without, attention(x))
    attention.train()
    mean = torch.stack([attention(x) for _ in range(4000)]).mean(0)
    assert not torch.equal(attention(x), attention(x))
    torch.testing.assert_close(mean, without, rtol=0, atol=0.05)


def test_heads_are_initialized_as_separate_linear_layers():
    torch.manual_seed(5)
    attention = CausalSelfAttention(6, 3, True)
    torch.manual_seed(5)
    for head in range(3):
        separate = [torch.nn.Linear(6, 2, bias=False).weight for _ in range(3)]
        for ours, theirs in zip(_matrices(attention, head), separate, strict=True):
            assert torch.equal(ours, theirs)
    assert torch.equal(attention.projection.weight, torch.nn.Linear(6, 6).weight)

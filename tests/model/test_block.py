"""The block against its formula written out, for every arrangement of norm, residual and extra projection."""

import dataclasses

import pytest
import torch
from torch.nn import functional as F

from gptcli.model.block import Block
from gptcli.stages import stage_model

BASE = dataclasses.replace(stage_model("4_9"), embedding_dim=6, num_heads=2, num_layers=1)


def _block(**changes):
    torch.manual_seed(7)
    block = Block(dataclasses.replace(BASE, **changes)).eval()
    with torch.no_grad():
        for name, parameter in block.named_parameters():
            if "_norm" in name:
                parameter.add_(torch.randn_like(parameter))  # so that a norm that is left out is seen
    return block


def _norm(block, name, x):
    norm = getattr(block, f"{name}_norm")
    return F.layer_norm(x, (6,), norm.weight, norm.bias)


def test_pre_norm():
    """x + attention(norm(x)), then x + feed_forward(norm(x))."""
    block, x = _block(), torch.randn(2, 5, 6)
    middle = x + block.attention(_norm(block, "attention", x))
    expected = middle + block.feed_forward(_norm(block, "feed_forward", middle))
    torch.testing.assert_close(block(x), expected)


def test_post_norm():
    """norm(x + attention(x)), then norm(x + feed_forward(x))."""
    block, x = _block(norm_placement="post"), torch.randn(2, 5, 6)
    middle = _norm(block, "attention", x + block.attention(x))
    expected = _norm(block, "feed_forward", middle + block.feed_forward(middle))
    torch.testing.assert_close(block(x), expected)


def test_no_norm_with_and_without_residual():
    x = torch.randn(2, 5, 6)
    plain = _block(norm="none", residual=False)
    torch.testing.assert_close(plain(x), plain.feed_forward(plain.attention(x)))
    residual = _block(norm="none")
    middle = x + residual.attention(x)
    torch.testing.assert_close(residual(x), middle + residual.feed_forward(middle))


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_extra_projections_stand_inside_the_branch(placement):
    block, x = _block(extra_projection=True, norm_placement=placement), torch.randn(2, 5, 6)
    torch.testing.assert_close(block(x), _written_out(block, x, placement))


def _written_out(block, x, placement):
    if placement == "pre":
        x = x + block.attention_extra(block.attention(_norm(block, "attention", x)))
        return x + block.feed_forward_extra(block.feed_forward(_norm(block, "feed_forward", x)))
    x = _norm(block, "attention", x + block.attention_extra(block.attention(x)))
    return _norm(block, "feed_forward", x + block.feed_forward_extra(block.feed_forward(x)))


@pytest.mark.parametrize(("missing", "left"), [("attention", "feed_forward"), ("feed_forward", "attention")])
def test_a_block_of_one_sublayer(missing, left):
    block = _block(**{missing: "none", "num_heads": 2 if left == "attention" else 1})
    x = torch.randn(2, 5, 6)
    torch.testing.assert_close(block(x), x + getattr(block, left)(_norm(block, left, x)))
    assert not any(name.startswith(f"{missing}.") for name, _ in block.named_parameters())


@pytest.mark.parametrize("placement", ["sublayer", "everywhere"])
@pytest.mark.parametrize("extra", [False, True])
def test_dropout_spares_the_residual_stream(placement, extra):
    """Where a branch's output, the extra projection's, is dropped, what remains is x itself, unscaled."""
    changes = {"dropout": 0.9, "dropout_placement": placement, "extra_projection": extra}
    block = _block(**changes, feed_forward="none").train()
    x = torch.randn(50, 5, 6)
    out = block(x)
    assert 0.8 < (out == x).double().mean() < 1.0

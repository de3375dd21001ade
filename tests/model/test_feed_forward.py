"""The feed-forward layer against equation 2 of Vaswani et al. (2017), one number at a time."""

import pytest
import torch

from gptcli.model.feed_forward import ReLUFeedForward, build_feed_forward


@pytest.mark.parametrize("width", [1, 3, 4])
def test_equals_the_formula(width):
    torch.manual_seed(width)
    layer = ReLUFeedForward(width, dropout=0.0)
    x = torch.randn(2, 3, width)
    weight_1, bias_1 = layer.expand.weight.tolist(), layer.expand.bias.tolist()
    weight_2, bias_2 = layer.contract.weight.tolist(), layer.contract.bias.tolist()
    assert len(weight_1) == 4 * width
    for row in range(2):
        for time in range(3):
            values = x[row, time].tolist()
            hidden = [
                max(0.0, bias + sum(w * v for w, v in zip(weights, values, strict=True)))
                for weights, bias in zip(weight_1, bias_1, strict=True)
            ]
            expected = [
                bias + sum(w * h for w, h in zip(weights, hidden, strict=True))
                for weights, bias in zip(weight_2, bias_2, strict=True)
            ]
            assert layer(x)[row, time].tolist() == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_dropout_acts_on_the_hidden_layer():
    """With all of the hidden layer as 1, what comes out is a sum over the kept ones, doubled."""
    layer = ReLUFeedForward(2, dropout=0.5).train()
    with torch.no_grad():
        layer.expand.weight.zero_()
        layer.expand.bias.fill_(1.0)
        layer.contract.weight.fill_(1.0)
        layer.contract.bias.zero_()
    out = layer(torch.zeros(200, 1, 2))
    assert set(out.unique().tolist()) <= {2.0 * kept for kept in range(9)}
    assert out.std() > 1
    assert torch.equal(layer.eval()(torch.zeros(1, 1, 2)), torch.full((1, 1, 2), 8.0))


def test_names():
    assert build_feed_forward("none", 4, 0.0) is None
    with pytest.raises(KeyError):
        build_feed_forward("gelu", 4, 0.0)

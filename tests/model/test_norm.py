"""Layer normalization by hand."""

import math

import pytest
import torch

from gptcli.model.norm import build_norm


@pytest.mark.parametrize("scale", [1.0, 1e-4, 1e4])
def test_layer_norm_equals_the_formula(scale):
    torch.manual_seed(0)
    norm = build_norm("layer_norm", 5)
    with torch.no_grad():
        norm.weight.copy_(torch.randn(5))
        norm.bias.copy_(torch.randn(5))
    x = torch.randn(2, 3, 5) * scale
    out = norm(x)
    for row in range(2):
        for time in range(3):
            values = x[row, time].tolist()
            mean = sum(values) / 5
            variance = sum((value - mean) ** 2 for value in values) / 5
            expected = [
                (value - mean) / math.sqrt(variance + 1e-5) * weight + bias
                for value, weight, bias in zip(values, norm.weight.tolist(), norm.bias.tolist(), strict=True)
            ]
            assert out[row, time].tolist() == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_none_is_the_identity():
    x = torch.randn(2, 3)
    assert build_norm("none", 3)(x) is x
    assert not list(build_norm("none", 3).parameters())

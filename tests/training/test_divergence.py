"""Where values stopped being finite: the first module is named, weights, forward and backward."""

import math

import pytest
import torch

from gptcli.model.gpt import GPT
from gptcli.stages import stage_model
from gptcli.training.divergence import describe_nonfinite, first_nonfinite_module

X, Y = torch.arange(8)[None], torch.arange(1, 9)[None]


@pytest.fixture
def model():
    """A healthy 4_10."""
    torch.manual_seed(0)
    return GPT(stage_model("4_10"), 65)


def test_a_healthy_model_has_none(model):
    assert first_nonfinite_module(model, X, Y) is None


@pytest.mark.parametrize(
    "name", ["token_embedding.weight", "blocks.1.feed_forward.contract.bias", "lm_head.bias"]
)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_weights_that_are_not_finite_are_named(model, name, bad):
    with torch.no_grad():
        model.get_parameter(name).view(-1)[0] = bad
    assert first_nonfinite_module(model, X, Y) == f"the weights {name}"


def test_the_first_output_that_overflows_is_named(model):
    with torch.no_grad():
        model.blocks[1].feed_forward.expand.weight.fill_(3e38)
        model.blocks[1].feed_forward.expand.bias.fill_(3e38)
        model.blocks[1].feed_forward_norm.bias.fill_(3.0)
    assert first_nonfinite_module(model, X, Y) == "the output of blocks.1.feed_forward.expand"


def test_a_gradient_that_overflows_is_named_with_its_parameter(model):
    """The first one on the way back, although a block names its norm after the layer that it stands before."""

    class Exploding(torch.autograd.Function):
        @staticmethod
        def forward(_context, x):
            return x.clone()

        @staticmethod
        def backward(_context, gradient):
            return gradient * math.inf

    class Wrapped(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return Exploding.apply(self.inner(x))

    model.blocks[2].feed_forward = Wrapped(model.blocks[2].feed_forward)
    found = first_nonfinite_module(model, X, Y)
    assert found.startswith("the gradient of blocks.2.feed_forward.inner.contract.")


def test_the_line_says_step_cause_and_what_helps(model):
    with torch.no_grad():
        model.lm_head.bias[0] = math.nan
    line = describe_nonfinite(model, X, Y, 37, math.nan, math.nan)
    assert "\n" not in line and "step 37" in line and "the loss is nan" in line
    assert "the weights lm_head.bias" in line and "optimizer.learning_rate" in line and "grad_clip" in line
    assert "the gradient norm is inf" in describe_nonfinite(model, X, Y, 1, 2.0, math.inf)


def test_looking_leaves_no_hooks_and_no_gradients(model):
    first_nonfinite_module(model, X, Y)
    assert all(not module._forward_hooks for module in model.modules())
    assert all(not parameter._backward_hooks for parameter in model.parameters())
    assert all(parameter.grad is None for parameter in model.parameters())

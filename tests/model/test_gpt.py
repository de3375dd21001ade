"""The whole model: it never looks ahead, at any stage, and is what its parts make together."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gptcli.model.gpt import GPT
from gptcli.stages import stage_model, stage_names

SYMBOLS = 11


def _small(stage, **changes):
    """The stage's architecture at a size that takes no time."""
    config = stage_model(stage)
    if config.lm_head:
        width = 12 if config.num_heads == 6 else 8
        config = dataclasses.replace(config, embedding_dim=width, num_layers=min(config.num_layers, 2))
    return dataclasses.replace(config, block_size=8, **changes)


def _build(config, scale=1.0):
    torch.manual_seed(3)
    model = GPT(config, SYMBOLS).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(scale)
    return model


MODELS = {stage: _build(_small(stage)) for stage in stage_names()}
MODELS |= {
    "post-norm": _build(_small("4_10", norm_placement="post")),
    "sinusoidal": _build(_small("4_10", position="sinusoidal")),
    "no position": _build(_small("4_10", position="none")),
    "large weights": _build(_small("4_7"), scale=1e3),
}


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_changed_token_moves_no_earlier_logit(name, data):
    time = data.draw(st.integers(2, 8))
    tokens = data.draw(st.lists(st.integers(0, SYMBOLS - 1), min_size=time, max_size=time))
    place = data.draw(st.integers(1, time - 1))
    other = (tokens[place] + data.draw(st.integers(1, SYMBOLS - 1))) % SYMBOLS
    changed = [*tokens[:place], other, *tokens[place + 1 :]]
    with torch.no_grad():
        before, after = MODELS[name](torch.tensor([tokens, changed]))
    assert torch.equal(before[:place], after[:place])
    assert not torch.equal(before[place], after[place])


@pytest.mark.parametrize("name", [name for name in MODELS if name != "large weights"])
def test_the_loss_at_a_position_has_no_gradient_later(name):
    """Seen from the embedded text, (1, time, embedding): zero after the position, not zero at it."""
    model = MODELS[name]
    embedded = model.embed(torch.arange(8)[None]).detach().requires_grad_()
    x = embedded
    for block in model.blocks:
        x = block(x)
    logits = model.lm_head(model.final_norm(x))
    for time in range(8):
        (gradient,) = torch.autograd.grad(logits[0, time].logsumexp(0), embedded, retain_graph=True)
        assert torch.equal(gradient[0, time + 1 :], torch.zeros_like(gradient[0, time + 1 :]))
        assert gradient[0, time].abs().sum() > 0


@pytest.mark.parametrize("stage", ["3_14", "4_2", "4_10", "5_11"])
def test_attention_reaches_all_of_the_past(stage):
    model = MODELS[stage]
    embedded = model.embed(torch.arange(8)[None]).detach().requires_grad_()
    x = embedded
    for block in model.blocks:
        x = block(x)
    (gradient,) = torch.autograd.grad(model.lm_head(model.final_norm(x))[0, 7].logsumexp(0), embedded)
    assert (gradient[0].abs().sum(-1) > 0).all()


@pytest.mark.parametrize("stage", ["2_9", "3_7"])
def test_without_attention_a_logit_depends_on_its_own_token_alone(stage):
    tokens = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 4]])
    first, second = MODELS[stage](tokens)
    assert torch.equal(first[3], second[3])


def test_bigram_rows_are_the_logits():
    model = MODELS["2_9"]
    tokens = torch.tensor([[4, 0, 10]])
    assert torch.equal(model(tokens)[0], model.token_embedding.weight[tokens[0]])
    assert [name for name, _ in model.named_parameters()] == ["token_embedding.weight"]


@pytest.mark.parametrize("stage", ["3_8", "3_14", "4_10"])
def test_a_text_longer_than_the_context_wraps_its_positions(stage):
    """positions = arange(time) modulo block_size, as the walkthrough writes it."""
    model = MODELS[stage]
    tokens = torch.arange(20)[None] % SYMBOLS
    places = torch.arange(20) % 8
    expected = model.token_embedding.weight[tokens] + model.position_embedding.weight[places]
    assert torch.equal(model.embed(tokens), expected)
    assert model(tokens).shape == (1, 20, SYMBOLS)


def test_the_parts_in_their_order():
    model = MODELS["4_10"]
    tokens = torch.tensor([[3, 1, 4, 1, 5]])
    x = model.token_embedding.weight[tokens] + model.position_embedding.weight[:5]
    for block in model.blocks:
        x = block(x)
    x = torch.nn.functional.layer_norm(x, (8,), model.final_norm.weight, model.final_norm.bias)
    torch.testing.assert_close(model(tokens), x @ model.lm_head.weight.T + model.lm_head.bias)

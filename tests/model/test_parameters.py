"""The shapes worked out without torch against those of the built module, over settings that no stage has."""

import dataclasses

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gptcli.errors import UserError
from gptcli.model.config import ModelConfig
from gptcli.model.gpt import GPT
from gptcli.model.parameters import parameter_count, parameter_shapes
from gptcli.stages import stage_model
from gptcli.validation import validate_model


@st.composite
def model_configs(draw):
    """A ModelConfig, most of which fit together, small enough to build at once."""
    heads = draw(st.integers(1, 3))
    config = ModelConfig(
        block_size=draw(st.integers(1, 5)),
        embedding_dim=heads * draw(st.integers(1, 4)),
        lm_head=True,
        num_layers=draw(st.integers(0, 3)),
        num_heads=heads,
        attention=draw(st.sampled_from(["none", "single_head", "multi_head"])),
        feed_forward=draw(st.sampled_from(["none", "relu"])),
        residual=draw(st.booleans()),
        extra_projection=draw(st.booleans()),
        norm=draw(st.sampled_from(["none", "layer_norm"])),
        norm_placement=draw(st.sampled_from(["pre", "post"])),
        final_norm=draw(st.booleans()),
        position=draw(st.sampled_from(["none", "learned", "sinusoidal"])),
        dropout=draw(st.sampled_from([0.0, 0.1])),
        dropout_placement=draw(st.sampled_from(["sublayer", "everywhere"])),
    )
    if config.attention != "multi_head":
        config = dataclasses.replace(config, num_heads=1)
    if not config.num_layers:
        idle = {"attention": "none", "feed_forward": "none", "norm": "none", "norm_placement": "pre"}
        off = {"residual": False, "extra_projection": False, "dropout": 0.0, "num_heads": 1}
        config = dataclasses.replace(config, **idle, **off)
    return config


def _is_valid(config):
    try:
        validate_model(config)
    except UserError:
        return False
    return True


@settings(max_examples=60, deadline=None)
@given(config=model_configs(), vocabulary_size=st.integers(1, 9))
def test_shapes_of_any_valid_model(config, vocabulary_size):
    assume(_is_valid(config))
    model = GPT(config, vocabulary_size)
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    assert parameter_shapes(config, vocabulary_size) == shapes
    assert parameter_count(config, vocabulary_size) == model.parameter_count()


def test_shapes_come_in_the_order_of_the_model():
    names = list(parameter_shapes(stage_model("4_8"), 65))
    assert names[:2] == ["token_embedding.weight", "position_embedding.weight"]
    assert names[2:4] == ["blocks.0.attention.qkv.weight", "blocks.0.attention.projection.weight"]
    assert names[-2:] == ["lm_head.weight", "lm_head.bias"]


@pytest.mark.parametrize("heads", [1, 2, 4, 8, 16, 32])
def test_the_number_of_heads_leaves_the_size_as_it_is(heads):
    config = dataclasses.replace(stage_model("4_10"), num_heads=heads)
    assert parameter_count(config, 65) == 42_369

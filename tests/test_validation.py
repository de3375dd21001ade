"""Settings that clash, each alone right; the message names the values and what would be right."""

import dataclasses
import re

import pytest

from gptcli import validation
from gptcli.composition import compose, hydra_session, prepare
from gptcli.errors import UserError
from gptcli.stages import stage_model, stage_names
from gptcli.validation import validate, validate_model, validate_size


def checked(*overrides):
    """Composes and validates overrides as they are typed."""
    with hydra_session():
        config, _ = compose(prepare(overrides))
    validate(config)
    return config


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            "model.num_heads=5",
            "model.num_heads=5 does not divide model.embedding_dim=32; use 1, 2, 4, 8, 16 or 32",
        ),
        (
            "model.embedding_dim=100 model.num_heads=6",
            "model.num_heads=6 does not divide model.embedding_dim=100",
        ),
        ("model.embedding_dim=100 model.num_heads=6", "a width of 96 or 102"),
        ("model.num_heads=64", "use 1, 2, 4, 8, 16 or 32"),
        ("model.embedding_dim=1 model.num_heads=2", "use 1 heads, or a width of 2 or 2"),
        (
            "stage=4_7 model.norm_placement=post",
            "model.norm_placement=post has nothing to place: model.norm is none",
        ),
        ("stage=3_8 model.norm=layer_norm", "model.norm=layer_norm has no effect with model.num_layers=0"),
        ("stage=3_18 model.num_heads=4", "model.num_heads=4 has no effect with model.attention=single_head"),
        ("stage=3_8 model.num_heads=4", "model.num_heads=4 has no effect with model.attention=none"),
        ("stage=4_10 model.attention=single_head", "model.num_heads=4 has no effect"),
        (
            "stage=2_9 model.embedding_dim=32",
            "model.embedding_dim=32 has no effect while model.lm_head=false",
        ),
        ("stage=2_9 model.lm_head=true", "model.lm_head=true needs model.embedding_dim, for example 32"),
        ("stage=3_7 model.lm_head=false", "model.embedding_dim=32 has no effect"),
        (
            "stage=3_7 model.lm_head=false model.embedding_dim=null model.final_norm=true",
            "no place for final_norm",
        ),
        ("stage=2_9 model.position=learned", "has no place for position; use stage=3_7 or later"),
        ("stage=2_9 model.num_layers=1 model.feed_forward=relu", "has no place for blocks"),
        ("stage=3_8 model.num_layers=2", "model.num_layers=2 blocks would be empty"),
        (
            "stage=3_8 model.attention=single_head",
            "model.attention=single_head has no effect with model.num_layers=0",
        ),
        (
            "stage=3_8 model.feed_forward=relu",
            "model.feed_forward=relu has no effect with model.num_layers=0",
        ),
        ("stage=3_8 model.residual=true", "model.residual=true has no effect with model.num_layers=0"),
        ("stage=3_8 model.extra_projection=true", "model.extra_projection=true has no effect"),
        ("stage=3_8 model.dropout=0.1", "model.dropout=0.1 has no effect with model.num_layers=0"),
        (
            "recipe=walkthrough trainer.eval_tokens=100",
            "trainer.eval_tokens=100 has no effect with recipe=walkthrough",
        ),
        (
            "trainer.steps=10 schedule=cosine",
            "schedule.warmup_steps=100 is longer than the run, trainer.steps=10",
        ),
        ("schedule.final_fraction=0.5", "schedule.final_fraction=0.5 has no effect with schedule=constant"),
        ("data.path=a.txt", "data.path=a.txt has no effect with data=auto; use data=text_file"),
        ("data=text_file", "data=text_file needs data.path=FILE"),
        ("data=text_file data.path=''", "data=text_file needs data.path=FILE"),
    ],
)
def test_a_clash_names_both_sides(overrides, message):
    with pytest.raises(UserError, match=re.escape(message)) as error:
        checked(*overrides.split(" "))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "overrides",
    [
        "stage=4_9 model.norm_placement=post",
        "stage=4_10 model.position=sinusoidal",
        "model.num_heads=32",
        "stage=4_7 model.norm=layer_norm model.norm_placement=post",
        "stage=3_8 model.position=sinusoidal",
        "stage=4_10 model.feed_forward=none",
        "model.attention=none model.num_heads=1",
        "model.position=none",
        "stage=3_7 model.final_norm=true",
        "trainer.steps=100 schedule=cosine",
        "schedule=linear trainer.steps=1000",
        "trainer.steps=1",
        "recipe=walkthrough",
        "data=text_file data.path=x.txt",
    ],
)
def test_what_makes_sense_is_allowed(overrides):
    checked(*overrides.split(" "))


@pytest.mark.parametrize(
    "stage", [stage for stage in stage_names() if stage_model(stage).attention == "multi_head"]
)
@pytest.mark.parametrize("heads", [1, 2, 4, 8, 16, 32])
def test_head_counts_at_constant_width(stage, heads):
    """Table 3, rows (A), of Vaswani et al. (2017) at toy size."""
    model = dataclasses.replace(stage_model(stage), num_heads=heads, embedding_dim=32)
    validate_model(model)
    with pytest.raises(UserError, match="does not divide"):
        validate_model(dataclasses.replace(model, num_heads=heads + 32))


def test_a_model_that_cannot_fit_is_refused_before_anything_is_allocated(monkeypatch):
    huge = dataclasses.replace(stage_model("4_10"), embedding_dim=2**20)
    with pytest.raises(UserError, match=r"parameters need [\d,.]+ GiB to train; this machine has"):
        validate_size(huge, 65)
    validate_size(stage_model("5_14"), 65)
    monkeypatch.setattr(validation, "physical_memory", lambda: 42_369 * 16)
    validate_size(stage_model("4_10"), 65)
    monkeypatch.setattr(validation, "physical_memory", lambda: 42_369 * 16 - 1)
    with pytest.raises(UserError, match="42,369 parameters"):
        validate_size(stage_model("4_10"), 65)
    monkeypatch.setattr(validation, "physical_memory", lambda: None)
    validate_size(huge, 65)

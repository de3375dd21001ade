"""Every stage against what the walkthrough's step files gave: counts, shapes, initial values, logits."""

import json
import re
from pathlib import Path

import pytest
import torch

from gptcli.model.gpt import GPT
from gptcli.model.parameters import parameter_count, parameter_shapes
from gptcli.stages import stage_model, stage_names

REFERENCE = json.loads((Path(__file__).parents[1] / "reference" / "walkthrough_seed42.json").read_text())
VOCABULARY = "\n !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
# The table in the documentation of the ladder, counted by hand from the architecture.
DOCUMENTED = {
    "2_9": 4_225, "3_7": 4_225, "3_8": 4_481, "3_14": 7_553, "3_18": 7_553,
    "4_1": 7_553, "4_2": 8_609, "4_3": 8_609, "4_4": 16_961, "4_5": 16_961,
    "4_6": 41_921, "4_7": 41_921, "4_8": 48_257, "4_9": 42_305, "4_10": 42_369,
    "5_3": 42_369, "5_4": 42_369, "5_5": 42_369,
    "5_11": 10_788_929, "5_12": 10_788_929, "5_13": 10_788_929, "5_14": 10_788_929,
}  # fmt: skip


def _model(stage):
    torch.manual_seed(REFERENCE["seed"])
    return GPT(stage_model(stage), len(VOCABULARY)).eval()


def _as_step_file(model):
    """Returns the tensors under the step files' names: a matrix for each head's query, key and value."""
    tensors = {}
    for name, tensor in model.state_dict().items():
        if name.endswith("attention.qkv.weight"):
            for kind, rows in zip(("query", "key", "value"), tensor.chunk(3), strict=True):
                for head, matrix in enumerate(rows.chunk(model.config.num_heads)):
                    tensors[name.replace("qkv", f"heads.{head}.{kind}")] = matrix
        else:
            tensors[name] = tensor
    return {_step_file_name(name, model.config): tensor for name, tensor in tensors.items()}


def _step_file_name(name, config):
    parts = [
        ("token_embedding", "token_embedding_table"), ("position_embedding", "position_embedding_table"),
        ("attention_norm", "ln1"), ("feed_forward_norm", "ln2"), ("attention.", "multi_head_attention."),
        ("expand", "fc1"), ("contract", "fc2"), ("final_norm", "final_layer_norm"), ("lm_head", "LM_head"),
    ]  # fmt: skip
    for ours, theirs in parts:
        name = name.replace(ours, theirs)
    if config.attention == "single_head":
        name = name.replace("multi_head_attention.heads.0", "attention_head")
    # Up to 4_5 the step files have no list of blocks.
    if config.num_layers == 1:
        return name.removeprefix("blocks.0.")
    return re.sub(r"^blocks\.", "transformer_blocks.", name)


def test_the_ladder_is_the_documented_one():
    assert stage_names() == list(DOCUMENTED)
    assert set(DOCUMENTED) - {"4_8"} <= set(REFERENCE["parameter_counts"])


@pytest.mark.parametrize("stage", stage_names())
def test_parameter_counts(stage):
    assert DOCUMENTED[stage] == REFERENCE["parameter_counts"][stage]
    assert _model(stage).parameter_count() == DOCUMENTED[stage]
    assert parameter_count(stage_model(stage), len(VOCABULARY)) == DOCUMENTED[stage]


@pytest.mark.parametrize("stage", stage_names())
def test_shapes_worked_out_are_those_of_the_model(stage):
    built = {name: tuple(parameter.shape) for name, parameter in _model(stage).named_parameters()}
    assert parameter_shapes(stage_model(stage), len(VOCABULARY)) == built
    # What is saved with a run is the parameters and nothing else, no masks, no tables.
    assert set(_model(stage).state_dict()) == set(built)


@pytest.mark.parametrize("stage", REFERENCE["stages"])
def test_tensor_shapes(stage):
    shapes = {name: list(tensor.shape) for name, tensor in _as_step_file(_model(stage)).items()}
    assert shapes == REFERENCE["stages"][stage]["tensors"]


@pytest.mark.parametrize("stage", REFERENCE["stages"])
def test_initial_values_are_drawn_in_the_order_of_the_step_file(stage):
    sums = {name: float(tensor.double().sum()) for name, tensor in _as_step_file(_model(stage)).items()}
    assert sums == pytest.approx(REFERENCE["stages"][stage]["init_param_sums"], abs=2e-5)


@pytest.mark.parametrize("stage", REFERENCE["stages"])
def test_initial_logits(stage):
    tokens = torch.tensor([[VOCABULARY.index(character) for character in REFERENCE["probe_text"]]])
    with torch.no_grad():
        last = _model(stage)(tokens)[0, -1]
    recorded = torch.tensor(REFERENCE["stages"][stage]["init_logits_last"])
    torch.testing.assert_close(last, recorded, rtol=0, atol=5e-6)

"""What inspect puts together: the default text, the notes, and what a run logged of itself."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from gptcli.analysis import inspection
from gptcli.data.tokenizer import CharacterTokenizer
from gptcli.errors import UserError
from gptcli.stages import stage_model

TEXT = "one:\ntwo three\n\nfour:\nfive six\n\nseven eight nine ten\n"


def _shown(text, block_size, corpus=TEXT):
    tokenizer = CharacterTokenizer.from_text(corpus)
    tokens = tokenizer.encode(corpus).astype(np.uint8)
    return inspection._shown_text(text, tokens, tokenizer, block_size, "validation")


def test_the_default_text_starts_a_paragraph():
    assert _shown(None, 8) == {"characters": "four:\nfi", "source": "validation split", "cropped": 0}
    assert _shown(None, 1)["characters"] == "f"
    assert _shown(None, 8, "abcabcabcabc")["characters"] == "abcabcab"
    # Nothing that starts too late to be whole is chosen.
    assert _shown(None, 8, "abcdefgh\n\nab")["characters"] == "abcdefgh"


def test_a_given_text_keeps_its_end():
    assert _shown("one two", 4) == {"characters": " two", "source": "--text", "cropped": 3}
    with pytest.raises(UserError, match="empty"):
        _shown("", 4)
    with pytest.raises(UserError, match="unknown character 'Z'"):
        _shown("Z", 4)


@pytest.mark.parametrize(
    "stage, words",
    [
        ("2_9", ["no blocks", "no LM head"]),
        ("3_8", ["no blocks"]),
        ("3_14", ["no feed-forward", "no residual"]),
        ("4_6", ["no residual"]),
        ("4_10", []),
    ],
)
def test_notes_say_what_does_not_apply(stage, words):
    notes = inspection.notes_on(stage_model(stage))
    assert len(notes) == len(words)
    assert all(note.startswith(start) for note, start in zip(notes, words, strict=True))
    without = dataclasses.replace(stage_model("4_10"), attention="none")
    assert [note.split(":")[0] for note in inspection.notes_on(without)] == ["no attention"]


@pytest.mark.parametrize("parameters, symbols", [(4_225, 32_768), (1_000_000, 20_000), (10_788_929, 4_096)])
def test_larger_models_get_fewer_symbols(parameters, symbols):
    # 6 heads, 2 sub-layers and the whole of one block, 5 parts of the other, and the intact model: 15 passes.
    blocks = [_block(6, ["attention", "feed_forward"]), _block(3, ["attention"])]
    model = SimpleNamespace(parameter_count=lambda: parameters, blocks=blocks)
    assert inspection._default_symbols(model) == symbols


def _block(num_heads, names):
    return SimpleNamespace(attention=SimpleNamespace(num_heads=num_heads), sublayer_names=lambda: names)


def test_only_whole_diagnostics_are_read():
    good = {"gradient_norm": {"block_1": {"query": 0.5, "key": None}}, "residual_rms": {"embeddings": 1}}
    damaged = [
        None,
        [],
        {"gradient_norm": {}},
        good | {"residual_rms": {"embeddings": "1"}},
        good | {"gradient_norm": {"block_1": 3.0}},
        good | {"gradient_norm": {"block_1": {"query": True}}},
        good | {"gradient_norm": [1.0]},
    ]
    records = [{"step": step, "diagnostics": one} for step, one in enumerate([*damaged, good])]
    assert inspection.logged_diagnostics([{"step": 99}, *records]) == [{"step": 7, **good}]


def test_numbers_that_json_lacks_become_null():
    value = {"a": [1.0, float("nan")], 2: {"b": float("inf")}, "c": None, "d": "x"}
    assert inspection._strict(value) == {"a": [1.0, None], "2": {"b": None}, "c": None, "d": "x"}

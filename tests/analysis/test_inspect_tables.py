"""An inspection in the terminal: numbers as given, split to fit narrow terminals."""

import pytest

from gptcli.analysis.inspect_tables import fitted, layer_norm, plus_minus, terminal_lines

MEASURES = ("entropy", "relative_entropy", "distance", "itself", "previous", "same_character", "line_start")


def _measures(value):
    return dict.fromkeys(MEASURES, value) | {"space": 0.375, "colon": None}


FACTS = {
    "stage": "4_10",
    "title": "A title\x1b[2J",
    "step": 2000,
    "parameters": 42_369,
    "block_size": 8,
    "corpus": "tiny_shakespeare",
    "split": "validation",
    "windows": 4096,
    "loss": 2.5,
    "standard_error": 0.0125,
    "notes": ["no residual connections"],
    "attention": {
        "heads": [{"block": 1, "head": 1, **_measures(0.125)}, {"block": 1, "head": 2, **_measures(0.75)}],
        "uniform": _measures(0.25),
    },
    "ablation": [
        {"part": "head", "block": 1, "head": 1, "difference": 0.5, "standard_error": 0.25},
        {"part": "head", "block": 1, "head": 2, "difference": -0.125, "standard_error": None},
        {"part": "attention", "block": 1, "head": None, "difference": 1.5, "standard_error": 0.0625},
        {"part": "block", "block": 1, "head": None, "difference": None, "standard_error": None},
    ],
    "gradient_norm": {
        "initial": {"embeddings": {"token": 0.3, "position": 0.4}, "block_1": {"query": 2e-7}},
        "checkpoint": {"embeddings": {"token": 3.0, "position": 4.0}, "block_1": {"query": None}},
    },
    "residual_rms": {
        "initial": {"embeddings": 1.5, "block_1": 2.5, "block_1/attention": 0.25},
        "checkpoint": {"embeddings": 1.75, "block_1": 2.75, "block_1/attention": 0.875},
    },
    "dead_relu_share": {"initial": {}, "checkpoint": {}},
    "loss_by_depth": [{"after": "embeddings", "loss": 4.25}, {"after": "block_1", "loss": 2.5}],
    "loss_by_position": [{"loss": 3.0 - 0.125 * place} for place in range(5)],
}


def _rows(lines):
    """The lines with single spaces."""
    return [" ".join(line.split()) for line in lines]


def test_every_number_is_there():
    lines = terminal_lines(FACTS)
    rows = _rows(lines)
    assert "stage 4_10  A title\\x1b[2J   42,369 parameters   step 2,000" in lines
    assert (
        "loss 2.5000 ± 0.0125 nats on 4,096 windows of 8 characters (tiny_shakespeare, validation)" in lines
    )
    assert "note  no residual connections" in lines
    first = "1.1 +0.5000 ± 0.2500 0.12 12 % 0.12 12 % 12 % 12 % 12 % 38 % -"
    assert first in rows
    assert "1.2 -0.1250 0.75 75 % 0.75 75 % 75 % 75 % 75 % 38 % -" in rows
    assert "1 +1.5000 ± 0.0625 -" in rows
    assert "embeddings 0.500 5.000 1.500 1.750 - 4.2500" in rows
    assert "block 1 2.0e-07 - 2.500 2.750 0.875 2.5000" in rows
    assert lines[-1] == "loss by characters seen  1: 3.000  2: 2.875  4: 2.625  5: 2.500"


@pytest.mark.parametrize("width", [40, 60, 100])
def test_tables_fit_the_terminal_and_lose_nothing(width):
    narrow, wide = terminal_lines(FACTS, width), terminal_lines(FACTS)
    tables = [line for line in narrow if line[:3] in ("hea", "1.1", "1.2", "eve", "dep", "emb", "blo")]
    assert len(tables) >= 7 and all(len(line) <= width for line in tables)
    assert set(" ".join(wide).split()) == set(" ".join(narrow).split())


def test_a_table_is_cut_between_columns():
    lines = list(fitted([["a", "11", "22", "33"]], ["x", "one", "two", "three"], 9))
    assert lines == ["x  one", "a   11", "x  two", "a   22", "x  three", "a     33"]
    assert list(fitted([["a", "11", "22"]], ["x", "one", "two"], 11)) == ["x  one  two", "a   11   22"]


def test_words_for_numbers():
    assert plus_minus(1.5, 0.25) == "1.5000 ± 0.2500"
    assert plus_minus(1.5, None, signed=True) == "+1.5000"
    assert plus_minus(None, None) == "-"
    assert layer_norm({"a": 3.0, "b": 4.0}) == 5.0
    assert layer_norm({"a": None, "b": 4.0}) is None and layer_norm(None) is None

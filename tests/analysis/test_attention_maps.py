"""Attention maps and measures against loops over windows, heads, queries and keys."""

import math

import pytest
import torch

from gptcli.analysis.attention_maps import MEASURES, attention_weights, measure_heads
from gptcli.data.tokenizer import CharacterTokenizer

TOKENIZER = CharacterTokenizer("\n :abcdefgh")


def _input_of_attention(model, tokens, number):
    """What reaches the attention of a block, from the model's parts called one by one."""
    x = model.embed(tokens)
    for block in model.blocks[: number - 1]:
        x = block(x)
    block = model.blocks[number - 1]
    return block.attention_norm(x) if block.norm_placement == "pre" else x


def _naive_weights(attention, x, head):
    """(time, time) of one head on x (time, embedding), by the formula, one number at a time."""
    size, width = attention.head_size, x.shape[1]
    rows = [kind * width + head * size for kind in (0, 1)]
    query, key = (x @ attention.qkv.weight.detach()[row : row + size].T for row in rows)
    weights = torch.zeros(len(x), len(x), dtype=x.dtype)
    for i in range(len(x)):
        scores = [float(query[i] @ key[j]) / math.sqrt(size) for j in range(i + 1)]
        total = sum(math.exp(score) for score in scores)
        for j in range(i + 1):
            weights[i, j] = math.exp(scores[j]) / total
    return weights


@pytest.mark.parametrize("changes", [{}, {"num_heads": 3}, {"norm_placement": "post"}, {"residual": False}])
def test_weights_are_those_of_the_formula(small_model, windows, changes):
    model, (tokens, _) = small_model(**changes), windows
    found = attention_weights(model, tokens)
    assert list(found) == [1, 2]
    for number, weights in found.items():
        attention = model.blocks[number - 1].attention
        x = _input_of_attention(model, tokens, number).detach()
        assert weights.shape == (5, attention.num_heads, 6, 6)
        for window in range(5):
            for head in range(attention.num_heads):
                torch.testing.assert_close(weights[window, head], _naive_weights(attention, x[window], head))


def test_a_fused_single_head_has_one_map(small_model, windows):
    model, (tokens, _) = small_model("3_14"), windows
    weights = attention_weights(model, tokens)
    x = model.embed(tokens).detach()
    torch.testing.assert_close(weights[1][2, 0], _naive_weights(model.blocks[0].attention, x[2], 0))
    assert weights[1].shape == (5, 1, 6, 6)


def test_no_attention_no_maps(small_model, windows):
    assert attention_weights(small_model("3_8"), windows[0]) == {}
    assert attention_weights(small_model("4_10", attention="none"), windows[0]) == {}


def _naive_measures(weights, text):
    """All measures of one head: weights[window][query][key], text[window][place]."""
    sums, counts = dict.fromkeys(MEASURES, 0.0), dict.fromkeys(MEASURES, 0)
    even_entropy = 0.0
    for of_window, characters in zip(weights, text, strict=True):
        for i, row in enumerate(of_window):
            for name in ("entropy", "distance", "itself", "space", "colon"):
                counts[name] += 1
            if i > 0:
                for name in ("previous", "same_character", "line_start"):
                    counts[name] += 1
                sums["previous"] += row[i - 1]
            even_entropy += math.log(i + 1)
            for j in range(i + 1):
                sums["entropy"] -= row[j] * math.log(row[j]) if row[j] > 0 else 0.0
                sums["distance"] += row[j] * (i - j)
                sums["itself"] += row[j] if i == j else 0.0
                sums["same_character"] += row[j] if j < i and characters[j] == characters[i] else 0.0
                sums["line_start"] += row[j] if j > 0 and characters[j - 1] == "\n" else 0.0
                sums["space"] += row[j] if characters[j] == " " else 0.0
                sums["colon"] += row[j] if characters[j] == ":" else 0.0
    measures = {name: sums[name] / counts[name] for name in MEASURES if name != "relative_entropy"}
    return measures | {"relative_entropy": sums["entropy"] / even_entropy}


TEXTS = ["a: b\na", "a\n a:b", "::  \n\n", "abcabc", "\nab\nab"]


def test_measures_are_those_of_loops(small_model):
    model = small_model()
    tokens = torch.tensor([TOKENIZER.encode(text).tolist() for text in TEXTS])
    heads, uniform = measure_heads(model, tokens, TOKENIZER)
    weights = attention_weights(model, tokens)
    assert [(head["block"], head["head"]) for head in heads] == [(b, h) for b in (1, 2) for h in (1, 2, 3, 4)]
    for head in heads:
        expected = _naive_measures(weights[head["block"]][:, head["head"] - 1].tolist(), TEXTS)
        assert {name: head[name] for name in MEASURES} == pytest.approx(expected, rel=1e-6)
    even = [[[1 / (i + 1)] * (i + 1) + [0.0] * (5 - i) for i in range(6)]] * len(TEXTS)
    assert uniform == pytest.approx(_naive_measures(even, TEXTS), rel=1e-5)
    assert uniform["relative_entropy"] == pytest.approx(1.0)


def test_pieces_change_nothing(small_model, monkeypatch):
    model = small_model()
    tokens = torch.tensor([TOKENIZER.encode(text).tolist() for text in TEXTS])
    whole, _ = measure_heads(model, tokens, TOKENIZER)
    monkeypatch.setattr("gptcli.analysis.attention_maps._PIECE_WEIGHTS", 1)
    for one, other in zip(whole, measure_heads(model, tokens, TOKENIZER)[0], strict=True):
        assert one == pytest.approx(other)


def test_what_a_vocabulary_or_window_lacks_is_none(small_model, windows):
    plain = CharacterTokenizer("abcdefghijk")
    heads, uniform = measure_heads(small_model(), windows[0], plain)
    for measures in (uniform, *heads):
        assert measures["line_start"] is measures["space"] is measures["colon"] is None
        assert measures["previous"] is not None
    heads, uniform = measure_heads(small_model(block_size=1), windows[0][:, :1], TOKENIZER)
    for measures in (uniform, *heads):
        assert measures["previous"] is measures["same_character"] is measures["relative_entropy"] is None
        assert (measures["itself"], measures["entropy"], measures["distance"]) == (1.0, 0.0, 0.0)

"""The loss by depth and by position, against the parts of the model and one prediction at a time."""

import math

import pytest

from gptcli.analysis.depth_lens import losses_by_depth


def _loss(logits, target):
    """The cross entropy of one prediction in nats."""
    values = logits.tolist()
    largest = max(values)
    return largest + math.log(sum(math.exp(value - largest) for value in values)) - values[int(target)]


@pytest.mark.parametrize("stage", ["2_9", "3_8", "3_14", "4_6", "4_10"])
def test_every_depth_and_position(small_model, windows, stage):
    model, (x, y) = small_model(stage), windows
    by_depth, by_position = losses_by_depth(model, x, y)
    stream = model.embed(x)
    names = ["embeddings", *(f"block_{number}" for number in range(1, 1 + len(model.blocks)))]
    assert [depth["after"] for depth in by_depth] == names
    for number, depth in enumerate(by_depth):
        if number:
            stream = model.blocks[number - 1](stream)
        logits = model.lm_head(model.final_norm(stream))
        losses = [[_loss(logits[w, t], y[w, t]) for t in range(6)] for w in range(5)]
        means = [sum(window) / 6 for window in losses]
        mean = sum(means) / 5
        error = math.sqrt(sum((one - mean) ** 2 for one in means) / 4 / 5)
        assert depth["loss"] == pytest.approx(mean) and depth["standard_error"] == pytest.approx(error)
    # The last depth is the model itself, and its losses are those of the positions.
    own = model(x)
    assert by_depth[-1]["loss"] == pytest.approx(
        sum(_loss(own[w, t], y[w, t]) for w in range(5) for t in range(6)) / 30
    )
    assert [position["loss"] for position in by_position] == pytest.approx(
        [sum(window[t] for window in losses) / 5 for t in range(6)]
    )


def test_one_window_has_no_standard_error(small_model, windows):
    x, y = windows
    by_depth, by_position = losses_by_depth(small_model(), x[:1], y[:1])
    assert all(entry["standard_error"] is None for entry in by_depth + by_position)


def test_pieces_change_nothing(small_model, windows, monkeypatch):
    model, (x, y) = small_model(), windows
    whole = losses_by_depth(model, x, y)
    monkeypatch.setattr("gptcli.analysis.residual_stream._PIECE_VALUES", 1)
    for entries, others in zip(whole, losses_by_depth(model, x, y), strict=True):
        for one, other in zip(entries, others, strict=True):
            assert one["loss"] == pytest.approx(other["loss"])
            assert one["standard_error"] == pytest.approx(other["standard_error"])

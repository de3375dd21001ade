"""The residual stream against the model's parts called one by one, and against sums by hand."""

import math

import pytest
import torch

from gptcli.analysis.residual_stream import dead_units, stream_scales, stream_states


def _parts(model, x):
    """{place: tensor} of a model, from its modules called one by one."""
    places = {"embeddings": model.embed(x)}
    stream = places["embeddings"]
    for number, block in enumerate(model.blocks, start=1):
        for name in ("attention", "feed_forward"):
            norm = getattr(block, f"{name}_norm")
            inside = norm(stream) if block.norm_placement == "pre" else stream
            out = getattr(block, f"{name}_extra")(getattr(block, name)(inside))
            places[f"block_{number}/{name}"] = out
            stream = stream + out if block.residual else out
            stream = norm(stream) if block.norm_placement == "post" else stream
        places[f"block_{number}"] = stream
    return places


def _root_mean_square(tensor):
    values = tensor.flatten().tolist()
    return math.sqrt(sum(value * value for value in values) / len(values))


@pytest.mark.parametrize(
    "stage, changes", [("4_10", {}), ("4_10", {"norm_placement": "post"}), ("4_6", {}), ("4_8", {})]
)
def test_scales_and_states_are_those_of_the_parts(small_model, windows, stage, changes):
    model, (x, _) = small_model(stage, **changes), windows
    parts = _parts(model, x)
    expected = {place: _root_mean_square(tensor) for place, tensor in parts.items()}
    assert stream_scales(model, x) == pytest.approx(expected, rel=1e-9)
    for state, place in zip(stream_states(model, x), ("embeddings", "block_1", "block_2"), strict=True):
        torch.testing.assert_close(state, parts[place])


def test_a_model_without_blocks_has_its_embeddings_alone(small_model, windows):
    model, (x, _) = small_model("2_9"), windows
    rows = torch.stack([model.token_embedding.weight[token] for token in x.flatten()])
    assert stream_scales(model, x) == pytest.approx({"embeddings": _root_mean_square(rows)})
    torch.testing.assert_close(stream_states(model, x)[0], rows.view(5, 6, 11))


def test_pieces_change_nothing(small_model, windows, monkeypatch):
    model, (x, _) = small_model(), windows
    whole = stream_scales(model, x), dead_units(model, x)
    monkeypatch.setattr("gptcli.analysis.residual_stream._PIECE_VALUES", 1)
    assert stream_scales(model, x) == pytest.approx(whole[0])
    assert dead_units(model, x) == whole[1]


def test_dead_units_are_counted(small_model, windows):
    model, (x, _) = small_model(), windows
    with torch.no_grad():
        # 12 of the 48 units of block 2 can never be active.
        expand = model.blocks[1].feed_forward.expand
        expand.bias[:12] = -1e3
        expand.weight[:12] = 0.0
    inside = []
    handle = expand.register_forward_hook(lambda _module, _inputs, output: inside.append(output))
    model(x)
    handle.remove()
    active = [max(inside[0][..., unit].flatten().tolist()) > 0 for unit in range(48)]
    found = dead_units(model, x)
    assert found["block_2"] == pytest.approx(active.count(False) / 48) and active[:12] == [False] * 12
    assert list(found) == ["block_1", "block_2"]


def test_no_feed_forward_layer_has_no_dead_units(small_model, windows):
    assert dead_units(small_model("4_2"), windows[0]) == {}

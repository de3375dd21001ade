"""What a part is worth, against copies of the model in which the part's output weights are zero."""

import copy

import pytest
import torch
from torch.nn import functional as F

from gptcli.analysis.ablation import Part, ablate, parts_of, silenced


def _losses(model, x, y):
    """Mean loss of each window, one window at a time."""
    with torch.no_grad():
        return [float(F.cross_entropy(model(one[None])[0], target)) for one, target in zip(x, y, strict=True)]


def _zeroed(model, part):
    """A copy of the model without the part, by weights alone."""
    other = copy.deepcopy(model)
    block = other.blocks[part.block - 1]
    with torch.no_grad():
        if part.kind == "head":
            size = block.attention.head_size
            columns = slice((part.head - 1) * size, part.head * size)
            if block.attention.projection is not None:
                block.attention.projection.weight[:, columns] = 0.0
            else:
                width = block.attention.qkv.weight.shape[1]
                block.attention.qkv.weight[2 * width :][columns] = 0.0
            return other
        for name in ("attention", "feed_forward") if part.kind == "block" else (part.kind,):
            sublayer = getattr(block, name)
            if sublayer is None:
                continue
            last = {"attention": "projection", "feed_forward": "contract"}[name]
            extra = getattr(block, f"{name}_extra")
            has_extra = isinstance(extra, torch.nn.Linear)
            for parameter in (extra if has_extra else getattr(sublayer, last) or sublayer.qkv).parameters():
                parameter.zero_()
    return other


MODELS = {
    "pre-norm": ("4_10", {}),
    "post-norm": ("4_10", {"norm_placement": "post"}),
    "no residual connections": ("4_6", {}),
    "extra projections": ("4_8", {}),
    "single head": ("3_14", {}),
    "several heads without a projection": ("3_14", {"num_heads": 3}),
    "attention alone": ("4_2", {}),
    "feed-forward alone": ("4_10", {"attention": "none"}),
}


@pytest.mark.parametrize("name", MODELS)
def test_silencing_equals_zeroed_output_weights(small_model, windows, name):
    stage, changes = MODELS[name]
    model, (x, y) = small_model(stage, **changes), windows
    found = ablate(model, x, y)
    assert [Part(one["part"], one["block"], one["head"]) for one in found] == parts_of(model)
    intact = _losses(model, x, y)
    for one in found:
        part = Part(one["part"], one["block"], one["head"])
        losses = _losses(_zeroed(model, part), x, y)
        differences = [silent - whole for silent, whole in zip(losses, intact, strict=True)]
        mean = sum(differences) / 5
        variance = sum((difference - mean) ** 2 for difference in differences) / 4
        assert one["loss"] == pytest.approx(sum(losses) / 5, abs=1e-12)
        assert one["difference"] == pytest.approx(mean, abs=1e-12)
        assert one["standard_error"] == pytest.approx((variance / 5) ** 0.5, abs=1e-12)
        assert abs(mean) > 1e-6


def test_the_parts_of_a_model(small_model):
    heads = [Part("head", 2, head) for head in (1, 2, 3, 4)]
    rest = [Part("attention", 2), Part("feed_forward", 2), Part("block", 2)]
    assert parts_of(small_model())[7:] == heads + rest
    assert parts_of(small_model("3_8")) == parts_of(small_model("2_9")) == []
    assert parts_of(small_model(attention="none", feed_forward="none")) == []


def test_nothing_stays_silenced(small_model, windows):
    model, (x, y) = small_model(), windows
    before = model(x)
    with silenced(model, Part("block", 1)):
        assert not torch.equal(model(x), before)
    ablate(model, x, y)
    assert torch.equal(model(x), before)


def test_a_silenced_sublayer_without_residual_connections_puts_out_zero(small_model, windows):
    model, (x, _) = small_model("4_6"), windows
    with silenced(model, Part("feed_forward", 2)):
        expected = model.lm_head(torch.zeros(5, 6, 12, dtype=torch.float64))
        torch.testing.assert_close(model(x), expected)


def test_one_window_has_no_standard_error(small_model, windows):
    x, y = windows
    assert all(one["standard_error"] is None for one in ablate(small_model(), x[:1], y[:1]))


def test_pieces_change_nothing(small_model, windows, monkeypatch):
    model, (x, y) = small_model(), windows
    whole = ablate(model, x, y)
    monkeypatch.setattr("gptcli.analysis.residual_stream._PIECE_VALUES", 1)
    for one, other in zip(whole, ablate(model, x, y), strict=True):
        assert one["difference"] == pytest.approx(other["difference"], abs=1e-12)

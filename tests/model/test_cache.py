"""Attention through kept keys and values against attention over the whole text."""

import pytest
import torch

from gptcli.model.cache import LayerCache, empty_caches, newest_logits
from gptcli.model.gpt import GPT
from gptcli.stages import stage_model


@pytest.mark.parametrize("stage", ["3_14", "4_2", "4_6", "4_8", "4_10"])
@pytest.mark.parametrize("start", [1, 3, 8])
def test_symbol_by_symbol_equals_all_at_once(stage, start):
    torch.manual_seed(0)
    model = GPT(stage_model(stage), 65).eval()
    tokens = torch.randint(65, (2, 8))
    with torch.no_grad():
        whole = model(tokens)
        caches = empty_caches(model, 2)
        parts = [model(tokens[:, :start], caches)]
        parts += [model(tokens[:, time : time + 1], caches) for time in range(start, 8)]
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, rtol=1e-5, atol=1e-5)
    assert [cache.length for cache in caches] == [8] * model.config.num_layers


def test_several_positions_can_only_start_a_cache():
    cache = LayerCache(1, 1, 8, 4, torch.zeros(1))
    pair = torch.randn(1, 1, 2, 4)
    cache.attend(pair, pair, pair)
    with pytest.raises(ValueError, match="start a cache"):
        cache.attend(pair, pair, pair)


@pytest.mark.parametrize("stage", ["3_14", "4_2", "4_6", "4_8", "4_10"])
@pytest.mark.parametrize("time", [1, 2, 8])
def test_the_newest_positions_logits_are_those_of_the_whole_window(stage, time):
    torch.manual_seed(0)
    model = GPT(stage_model(stage), 65).eval()
    tokens = torch.randint(65, (3, time))
    with torch.no_grad():
        torch.testing.assert_close(newest_logits(model, tokens), model(tokens)[:, -1], rtol=1e-5, atol=1e-5)

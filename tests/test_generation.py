"""Sampling against loops over probabilities, draws against their distribution, the cache against none."""

import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from gptcli.errors import UserError
from gptcli.generation import Sampling, continuations, draw, generate, kept_probabilities
from gptcli.model.gpt import GPT
from gptcli.stages import stage_model

SYMBOLS = 65


@pytest.fixture(scope="module")
def model():
    """A small GPT whose next symbol is uncertain, but not equally so."""
    torch.manual_seed(1)
    return GPT(stage_model("4_10"), SYMBOLS).eval()


def text(model, prompt, tokens=30, seeds=(1,), cached=True, **sampling):
    """Returns the continuations, a list of symbols for each seed."""
    prompts = [list(prompt)] * len(seeds)
    drawn = generate(model, prompts, tokens, Sampling(**sampling), list(seeds), cached=cached)
    return torch.stack(list(drawn)).T.tolist()


def greedy(model, prompt, tokens):
    """Returns the most probable continuation, computed from scratch for every symbol."""
    symbols = list(prompt)
    for _ in range(tokens):
        with torch.no_grad():
            logits = model(torch.tensor([symbols[-model.config.block_size :]]))[0, -1]
        symbols.append(max(range(SYMBOLS), key=lambda symbol: float(logits[symbol])))
    return symbols[len(prompt) :]


@pytest.mark.parametrize(
    "sampling", [{"temperature": 0.0}, {"top_k": 1}, {"temperature": 0.0, "top_k": 3}, {"top_p": 1e-9}]
)
def test_greedy_in_every_form(model, sampling):
    assert text(model, [1, 2, 3], **sampling) == [greedy(model, [1, 2, 3], 30)]


@pytest.mark.parametrize("top_k", [0, 65, 66, 1000])
def test_top_k_that_keeps_everything_is_off(model, top_k):
    assert text(model, [4], top_k=top_k) == text(model, [4])


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("top_k", -1, "top-k -1"),
        ("temperature", -0.5, "temperature -0.5"),
        ("temperature", math.nan, "temperature nan"),
        ("temperature", math.inf, "temperature inf"),
        ("top_p", 0.0, "top-p 0.0"),
        ("top_p", 1.1, "top-p 1.1"),
        ("top_p", -1.0, "top-p -1.0"),
        ("top_p", math.nan, "top-p nan"),
    ],
)
def test_settings_out_of_range_are_named(setting, value, message):
    with pytest.raises(UserError, match=message):
        Sampling(**{setting: value})


def _naive_kept(logits, temperature, top_k, top_p):
    """Returns the normalized probabilities that are left, by loops over a sorted list."""
    exponentials = [math.exp((logit - max(logits)) / temperature) for logit in logits]
    order = sorted(range(len(logits)), key=lambda symbol: (-exponentials[symbol], symbol))
    if top_k:
        order = order[:top_k]
    total = sum(exponentials[symbol] for symbol in order)
    kept, cumulative = {}, 0.0
    for symbol in order:
        kept[symbol] = exponentials[symbol] / total
        cumulative += kept[symbol]
        if cumulative >= top_p:
            break
    left = sum(kept.values())
    return [kept.get(symbol, 0.0) / left for symbol in range(len(logits))]


@settings(max_examples=100, deadline=None)
@given(
    logits=st.lists(st.integers(-40, 40).map(lambda number: number / 8), min_size=1, max_size=12),
    temperature=st.sampled_from([0.1, 0.7, 1.0, 3.0]),
    top_k=st.integers(0, 14),
    # Off the sums that whole multiples of 1/8 can reach, where rounding would decide.
    top_p=st.sampled_from([0.1234567, 0.5234567, 0.9012345, 1.0]),
)
def test_what_is_kept_equals_the_loop(logits, temperature, top_k, top_p):
    kept = kept_probabilities(torch.tensor([logits], dtype=torch.float64), Sampling(temperature, top_k, top_p))[0]
    expected = _naive_kept(logits, temperature, top_k, top_p)
    assert (kept / kept.sum()).tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("top_p", "kept"), [(0.5, 1), (0.5001, 2), (0.75, 2), (0.7501, 3), (1.0, 4)])
def test_top_p_keeps_the_fewest_that_reach_it(top_p, kept):
    """Probabilities 1/2, 1/4, 1/8, 1/8, which add up without rounding."""
    logits = torch.tensor([[4.0, 2.0, 1.0, 1.0]], dtype=torch.float64).log()
    assert int((kept_probabilities(logits, Sampling(top_p=top_p)) > 0).sum()) == kept


def test_ties_at_the_border_of_top_k_keep_exactly_k():
    kept = kept_probabilities(torch.zeros(1, 5, dtype=torch.float64), Sampling(top_k=2))[0]
    assert (kept > 0).tolist() == [True, True, False, False, False]


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.5), Sampling(top_k=3), Sampling(top_p=0.8)])
def test_draws_have_the_frequencies_of_the_probabilities(sampling):
    logits = [1.0, 0.3, -0.5, 2.0, -1.0]
    number = 20_000
    uniform = torch.rand(number, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    drawn = draw(torch.tensor([logits]).expand(number, -1), sampling, uniform)
    counts = torch.bincount(drawn, minlength=5).tolist()
    expected = _naive_kept(logits, sampling.temperature, sampling.top_k, sampling.top_p)
    assert [count for count, chance in zip(counts, expected, strict=True) if chance == 0] == [0] * expected.count(0)
    pairs = [(count, chance * number) for count, chance in zip(counts, expected, strict=True) if chance]
    assert chisquare(*zip(*pairs, strict=True)).pvalue > 1e-3


def test_the_ends_of_the_unit_interval_give_symbols_that_were_kept():
    logits = torch.tensor([[-50.0, 1.0, 2.0, -60.0]])
    for sampling in (Sampling(top_k=2), Sampling(top_p=0.9)):
        for number in (0.0, 1 - 2**-53):
            symbol = draw(logits, sampling, torch.tensor([number], dtype=torch.float64))
            assert symbol.item() in (1, 2)


def _long_context(stage):
    """A model of the stage whose context is long enough for the cache to be used."""
    torch.manual_seed(2)
    return GPT(dataclasses.replace(stage_model(stage), block_size=40), SYMBOLS).eval()


@pytest.mark.parametrize("stage", ["2_9", "3_8", "3_18", "4_6", "4_8", "4_10"])
@pytest.mark.parametrize("length", [1, 33, 40, 400])
def test_cache_and_no_cache_give_the_same_text_across_the_contexts_end(stage, length):
    model = _long_context(stage)
    prompt = [(7 * place) % SYMBOLS for place in range(length)]
    assert text(model, prompt, 50, seeds=[1, 2]) == text(model, prompt, 50, seeds=[1, 2], cached=False)
    assert text(model, prompt, 50, temperature=0.0) == [greedy(model, prompt, 50)]


def test_the_cache_computes_each_position_once_while_the_text_fits(monkeypatch):
    model, seen = _long_context("4_10"), []
    embed = model.embed

    def counting(tokens, offset=0):
        seen.append(tokens.shape[1])
        return embed(tokens, offset)

    monkeypatch.setattr(model, "embed", counting)
    text(model, [1] * 36, tokens=7)
    assert seen == [36, 1, 1, 1, 1, 40, 40]


@pytest.mark.parametrize("block_size", [8, 40])
def test_prompts_of_different_lengths_side_by_side_equal_each_alone(block_size):
    torch.manual_seed(6)
    model = GPT(dataclasses.replace(stage_model("4_10"), block_size=block_size), SYMBOLS).eval()
    prompts = [[1], [2, 3, 4], [5] * 8, [6, 7] * 30]
    alone = [text(model, prompt, seeds=[9 + row])[0] for row, prompt in enumerate(prompts)]
    assert continuations(model, prompts, 30, Sampling(), [9, 10, 11, 12]) == alone
    assert continuations(model, [], 30, Sampling(), []) == []


def test_a_seed_gives_the_same_text_whatever_is_drawn_beside_it(model):
    alone = text(model, [5], seeds=[11])[0]
    assert text(model, [5], seeds=[11])[0] == alone
    assert text(model, [5], seeds=[3, 11, 4, 11])[1] == alone
    assert text(model, [5], seeds=[12])[0] != alone
    assert text(model, [5], tokens=12, seeds=[11])[0] != []


def test_texts_neither_use_nor_move_torchs_own_generator(model):
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first = text(model, [5])
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(99)
    assert text(model, [5]) == first


def test_a_long_prompt_counts_by_its_last_symbols(model):
    tail = [9, 8, 7, 6, 5, 4, 3, 2]
    assert text(model, [1] * 72 + tail) == text(model, tail)
    several = range(8)
    ones = text(model, [1] * 8, seeds=several)
    assert text(model, tail + [1] * 72, seeds=several) == ones != text(model, tail, seeds=several)


def test_the_window_slides_by_one(model):
    """Greedy text past the context, against the whole computed anew for every symbol."""
    assert text(model, [3], tokens=25, temperature=0.0) == [greedy(model, [3], 25)]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_model_that_is_not_finite_is_an_error(bad):
    broken = GPT(stage_model("3_7"), SYMBOLS)
    with torch.no_grad():
        broken.lm_head.bias[3] = bad
    for sampling in ({}, {"temperature": 0.0}, {"top_k": 5}):
        with pytest.raises(UserError, match="not finite"):
            text(broken, [1], **sampling)


def test_dropout_is_off_and_the_mode_is_given_back():
    torch.manual_seed(4)
    config = dataclasses.replace(stage_model("5_4"), dropout=0.5)
    model = GPT(config, SYMBOLS).train()
    assert text(model, [1]) == text(model, [1])
    assert model.training

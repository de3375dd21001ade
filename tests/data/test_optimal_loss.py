"""Exact losses of finite-state sources against hand calculation and plain enumeration of all strings."""

import math

import numpy as np
import pytest

from gptcli.data.finite_state import build_machine
from gptcli.data.optimal_loss import belief_graph, conditional_entropies
from gptcli.data.synthetic_floor import floor_by_position
from gptcli.data.synthetic_grammar import slots

COIN = {"coin": [("a", 0.5, "coin"), ("b", 0.5, "coin")]}
CLOCK = {"clock": [("ab", 1.0, "clock")]}
GOLDEN = {"free": [("a", 0.5, "free"), ("b", 0.5, "forced")], "forced": [("a", 1.0, "free")]}
WORDS = {
    "start": [("the ", 0.6, "noun"), ("a ", 0.4, "noun"), ("then ", 1e-9, "start")],
    "noun": [("cat", 0.5, "end"), ("hat", 0.3, "end"), ("bee", 0.2, "end")],
    "end": [(" ", 0.7, "start"), (". ", 0.3, "start")],
}
TOPICS = {
    ("say", topic): [(word, 0.5, ("next", topic)), ("x", 0.5, ("next", topic))]
    for topic, word in enumerate(["ab", "cb", "ac"])
} | {
    ("next", topic): [(" ", 0.8, ("say", topic)), (".", 0.2, ("say", (topic + 1) % 3))] for topic in range(3)
}


def letters(grammar):
    return "".join(
        sorted({character for choices in grammar.values() for text, _, _ in choices for character in text})
    )


def entropies(grammar, longest, negligible=0.0):
    machine = build_machine(grammar, letters(grammar))
    return conditional_entropies(belief_graph(machine, longest, negligible), longest)


def enumerated(grammar, longest):
    """H(next | k before) as the difference of the entropies of all strings of k + 1 and of k characters."""
    machine = build_machine(grammar, letters(grammar))
    edges = {}
    for source, symbol, target, probability in zip(*machine[:4], strict=True):
        edges.setdefault(int(source), []).append((int(symbol), int(target), float(probability)))
    strings = {"": dict(enumerate(machine.stationary))}
    block = [0.0]
    for _ in range(longest + 1):
        longer = {}
        for string, states in strings.items():
            for state, weight in states.items():
                for symbol, target, probability in edges[state]:
                    into = longer.setdefault(f"{string}{symbol:02d}", {})
                    into[target] = into.get(target, 0.0) + weight * probability
        strings = longer
        chances = [sum(states.values()) for states in strings.values()]
        block.append(-math.fsum(chance * math.log(chance) for chance in chances))
    return np.diff(block)


def test_a_fair_coin_costs_ln_2_whatever_is_known():
    assert entropies(COIN, 5)[0] == pytest.approx([math.log(2)] * 6)


def test_a_clock_is_known_after_one_character():
    assert entropies(CLOCK, 3)[0] == pytest.approx([math.log(2), 0, 0, 0], abs=1e-12)


def test_the_golden_mean_process():
    # Two thirds of the characters come from the free state; a third are b, and only a follows b.
    share = 1 / 3
    alone = -(share * math.log(share) + (1 - share) * math.log(1 - share))
    assert entropies(GOLDEN, 3)[0] == pytest.approx([alone, *[2 / 3 * math.log(2)] * 3])


@pytest.mark.parametrize(
    "grammar", [COIN, CLOCK, GOLDEN, WORDS, TOPICS], ids=["coin", "clock", "golden", "words", "topics"]
)
def test_equal_to_the_enumeration_of_all_strings(grammar):
    assert entropies(grammar, 8)[0] == pytest.approx(enumerated(grammar, 8), abs=1e-9)


def test_equal_to_the_enumeration_on_the_play_itself():
    assert floor_by_position(3) == pytest.approx(enumerated(slots(), 3)[1:], abs=1e-9)


def test_what_is_left_out_is_bounded():
    exact, nothing = entropies(TOPICS, 10)
    rough, lost = entropies(TOPICS, 10, negligible=1e-2)
    assert not nothing.any()
    assert lost[-1] > 0
    assert (rough <= exact + 1e-12).all()
    assert (exact <= rough + lost * math.log(len(letters(TOPICS))) + 1e-12).all()


def test_the_entropy_rate_is_the_limit_for_a_source_that_shows_its_state():
    machine = build_machine(WORDS, letters(WORDS))
    assert entropies(WORDS, 40)[0][-1] == pytest.approx(machine.entropy_rate, abs=1e-9)


def test_stationary_distribution_is_kept_by_a_step():
    machine = build_machine(TOPICS, letters(TOPICS))
    after = np.bincount(machine.target, machine.stationary[machine.source] * machine.probability)
    assert after == pytest.approx(machine.stationary, abs=1e-12)


def test_a_text_that_begins_another_one_is_refused():
    with pytest.raises(ValueError, match="'ab' begins 'abc'"):
        build_machine({"slot": [("ab", 0.5, "slot"), ("abc", 0.5, "slot")]}, "abc")

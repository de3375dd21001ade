"""The synthetic play: its text, and the probabilities that it claims to follow."""

import hashlib
import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from gptcli.data.synthetic_floor import floor, floor_by_position, machine
from gptcli.data.synthetic_grammar import ALPHABET, SPEAKERS, inflected, slots
from gptcli.data.synthetic_play import generate


@pytest.fixture(scope="module")
def play():
    return generate(seed=0)


def conditional_entropy(text, context):
    """Plug-in estimate of H(next | context characters before) in nats."""
    codes = np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int64)
    before = np.zeros(len(codes) - context, dtype=np.int64)
    for offset in range(context):
        before = before * 128 + codes[offset : len(codes) - context + offset]
    joint = np.unique(before * 128 + codes[context:], return_counts=True)[1]
    alone = np.unique(before, return_counts=True)[1]
    total = len(before)
    return float(
        -(joint / total * np.log(joint / total)).sum() + (alone / total * np.log(alone / total)).sum()
    )


def test_the_alphabet_is_that_of_tiny_shakespeare(corpus_path):
    assert "".join(sorted(set(corpus_path.read_text(encoding="utf-8")))) == ALPHABET


def test_all_characters_of_the_alphabet_occur_and_no_other(play):
    assert len(play) == 1_115_394
    assert "".join(sorted(set(play))) == ALPHABET


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_other_seeds_use_the_whole_alphabet_too(seed):
    assert "".join(sorted(set(generate(seed)))) == ALPHABET


def test_the_text_of_a_seed_never_changes(play):
    digest = hashlib.sha256(play.encode()).hexdigest()
    assert digest == "5eb22e4c06039832d17dc76f50a7c7bf7d41aa0cbca5b57a9ebdc0277495a5c2"
    assert generate(0, 1000) == play[:1000]
    assert generate(1, 1000) != play[:1000]


@pytest.mark.parametrize("characters", [1, 2, 9, 1000])
def test_the_length_is_exact(characters):
    assert len(generate(5, characters)) == characters


def test_it_reads_like_a_play(play):
    speeches = [speech for speech in play.split("\n\n") if ":\n" in speech]
    assert len(speeches) > 4000
    names = Counter(speech.partition(":\n")[0] for speech in speeches)
    assert set(names) == {speaker.name for speaker in SPEAKERS}
    assert "\n\nEnter " in play and "\n\nExeunt " in play
    lines = [len(line) for line in play.split("\n")]
    assert 20 < np.mean([length for length in lines if length]) < 60 and max(lines) < 400


def test_who_enters_speaks_next(play):
    scenes = play.split("\n\n")
    entrances = [(scene, following) for scene, following in pairwise(scenes) if scene[:6] == "Enter "]
    assert len(entrances) > 500
    for scene, following in entrances:
        name = next(speaker.name for speaker in SPEAKERS if scene[6:].startswith(speaker.name))
        assert following.startswith(name)


def test_speakers_keep_to_their_manner(play):
    manner = {speaker.name: speaker.manner for speaker in SPEAKERS}
    for speech in play.split("\n\n"):
        name, colon, words = speech.partition(":\n")
        if colon:
            words = words.lower().replace(",", " ").split()
            wrong = {"thou": {"you", "your"}, "you": {"thou", "thy"}}[manner[name]]
            assert not wrong & set(words)


def test_validation_looks_like_training(play):
    cut = int(0.9 * len(play))
    train, validation = Counter(play[:cut]), Counter(play[cut:])
    for character in ALPHABET:
        share = train[character] / cut
        assert abs(validation[character] / (len(play) - cut) - share) < 6 * math.sqrt(
            share / (len(play) - cut) * 5
        )


@pytest.mark.parametrize(
    ("word", "plural"),
    [("lady", "ladies"), ("witch", "witches"), ("kiss", "kisses"), ("buy", "buys"), ("king", "kings")],
)
def test_inflection(word, plural):
    assert inflected(word) == plural


def test_weights_of_a_slot_add_up_to_one_and_every_slot_can_be_reached():
    grammar = slots()
    for choices in grammar.values():
        assert math.fsum(choice.weight for choice in choices) == pytest.approx(1, abs=1e-12)
    assert {choice.following for choices in grammar.values() for choice in choices} == set(grammar)


def test_the_machine_has_the_letter_frequencies_of_a_long_text():
    text = generate(seed=11, characters=3_000_000)
    source = machine()
    expected = np.bincount(source.symbol, source.stationary[source.source] * source.probability)
    counts = Counter(text)
    for symbol, character in enumerate(ALPHABET):
        share = expected[symbol]
        assert abs(counts[character] / len(text) - share) < 6 * math.sqrt(share / len(text) * 5), character


def test_floor_agrees_with_the_statistics_of_a_long_text():
    text = generate(seed=7, characters=5_000_000)
    by_position = floor_by_position(3)
    # The plug-in estimate is too low by about (parameters / 2 * characters), 0.002 at three characters.
    assert conditional_entropy(text, 1) == pytest.approx(by_position[0], abs=0.003)
    assert conditional_entropy(text, 2) == pytest.approx(by_position[1], abs=0.004)
    assert conditional_entropy(text, 3) == pytest.approx(by_position[2], abs=0.006)


def test_a_bigram_table_reaches_the_floor_of_one_character(play):
    codes = np.searchsorted(np.array(list(ALPHABET)), np.array(list(play)))
    cut = int(0.9 * len(codes))
    counts = np.full((65, 65), 1e-3)
    np.add.at(counts, (codes[: cut - 1], codes[1:cut]), 1)
    table = np.log(counts / counts.sum(1, keepdims=True))
    loss = -table[codes[cut:-1], codes[cut + 1 :]].mean()
    assert loss == pytest.approx(floor(1), abs=0.01)


def test_floor_falls_with_context_and_stays_above_the_entropy_rate():
    by_position = floor_by_position(256)
    assert (np.diff(by_position) < 1e-6).all()
    assert by_position[0] - by_position[7] > 1.5 and by_position[7] - by_position[31] > 0.05
    assert 0 < by_position[-1] - machine().entropy_rate < 2e-4
    assert floor(8) == pytest.approx(by_position[:8].mean(), abs=1e-9)

"""Positions: the sinusoids from their formula, and both kinds past the context's end."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gptcli.model.position import LearnedPosition, SinusoidalPosition, build_position, sinusoidal_table


@pytest.mark.parametrize(("block_size", "width"), [(1, 1), (4, 2), (9, 5), (8, 32), (300, 7), (16, 384)])
def test_sinusoids_by_the_formula(block_size, width):
    table = sinusoidal_table(block_size, width)
    assert table.shape == (block_size, width)
    for position in range(block_size):
        for feature in range(width):
            angle = position / 10000 ** (2 * (feature // 2) / width)
            expected = math.sin(angle) if feature % 2 == 0 else math.cos(angle)
            assert float(table[position, feature]) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("kind", [LearnedPosition, SinusoidalPosition])
@settings(max_examples=40, deadline=None)
@given(block_size=st.integers(1, 6), time=st.integers(1, 15), offset=st.integers(0, 15))
def test_positions_wrap_around_the_context(kind, block_size, time, offset):
    torch.manual_seed(0)
    position = kind(block_size, 4)
    vectors = position(time, offset)
    assert vectors.shape == (time, 4)
    for step in range(time):
        assert torch.equal(vectors[step], position(block_size)[(offset + step) % block_size])


def test_sinusoids_are_neither_trained_nor_saved():
    position = build_position("sinusoidal", 8, 4)
    assert not list(position.parameters()) and not position.state_dict()
    assert build_position("none", 8, 4) is None


def test_learned_positions_start_as_an_embedding_does():
    torch.manual_seed(6)
    position = build_position("learned", 8, 4)
    torch.manual_seed(6)
    assert torch.equal(position.weight, torch.nn.Embedding(8, 4).weight)

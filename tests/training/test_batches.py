"""Training batches: the step files' own draws, and the same stream however it is cut and resumed."""

import random

import numpy as np
import pytest
import torch

from gptcli.data.windows import WalkthroughSampler
from gptcli.training.batches import TrainingBatches

TOKENS = np.arange(500, dtype=np.uint16)


def stream(seed=1, walkthrough=False, block_size=4, batch_size=3):
    """Returns a fresh TrainingBatches over tokens whose values are their positions."""
    sampler = WalkthroughSampler(seed) if walkthrough else None
    return TrainingBatches(TOKENS, block_size, batch_size, seed, sampler)


@pytest.mark.parametrize("walkthrough", [False, True])
def test_targets_are_the_inputs_shifted_by_one(walkthrough):
    x, y = stream(walkthrough=walkthrough).draw(0, 5)
    assert x.shape == y.shape == (5, 3, 4) and x.dtype == y.dtype == torch.int64
    assert torch.equal(y, x + 1)
    assert torch.equal(x[..., 1:], x[..., :-1] + 1)
    assert x.min() >= 0 and y.max() < 500


def test_the_walkthrough_draws_as_its_step_files_do():
    """random.randint(0, length - block_size - 1), batch by batch."""
    x, _ = stream(seed=42, walkthrough=True).draw(0, 4)
    random.seed(42)
    expected = [[random.randint(0, 500 - 4 - 1) for _ in range(3)] for _ in range(4)]
    assert x[:, :, 0].tolist() == expected


@pytest.mark.parametrize("walkthrough", [False, True])
@pytest.mark.parametrize("cuts", [[20], [1] * 20, [7, 13], [3, 5, 12]])
def test_the_same_batches_however_many_are_drawn_at_once(walkthrough, cuts):
    batches, step, parts = stream(walkthrough=walkthrough), 0, []
    for count in cuts:
        parts.append(batches.draw(step, count)[0])
        step += count
    assert torch.equal(torch.cat(parts), stream(walkthrough=walkthrough).draw(0, 20)[0])


def test_another_seed_gives_other_batches():
    assert not torch.equal(stream(seed=1).draw(0, 3)[0], stream(seed=2).draw(0, 3)[0])


def test_the_default_stream_needs_no_state():
    batches = stream()
    batches.draw(0, 10)
    assert batches.state(10) is None
    fresh = stream()
    fresh.restore(None, 10)
    assert torch.equal(fresh.draw(10, 4)[0], stream().draw(0, 14)[0][10:])


@pytest.mark.parametrize("used", [0, 1, 6, 10])
def test_a_state_taken_within_a_drawn_stretch_goes_on_from_there(used):
    """Batches are drawn ahead: a run stopped after some of them goes on with the rest."""
    batches = stream(walkthrough=True)
    batches.draw(0, 10)
    state = batches.state(used)
    expected = stream(walkthrough=True).draw(0, 16)[0][used:]
    fresh = stream(seed=99, walkthrough=True)
    fresh.restore(state, used)
    assert torch.equal(fresh.draw(used, 16 - used)[0], expected)


def test_a_state_after_an_evaluation_goes_on_after_its_draws():
    """Evaluations draw from the same generator; mark says that what was drawn ahead is used."""
    batches = stream(walkthrough=True)
    batches.draw(0, 10)
    batches.walkthrough.draw(500, 4, 7)
    batches.mark(10)
    state = batches.state(10)
    following = batches.draw(10, 3)[0]
    fresh = stream(seed=99, walkthrough=True)
    fresh.restore(state, 10)
    assert torch.equal(fresh.draw(10, 3)[0], following)
    assert not torch.equal(following, stream(walkthrough=True).draw(0, 13)[0][10:])


def test_few_large_batches_are_drawn_at_once():
    assert stream(block_size=4, batch_size=3).steps_at_once == 256
    assert stream(block_size=400, batch_size=1024).steps_at_once == 1

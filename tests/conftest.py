"""Fixtures that several test modules share."""

import os
import random
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def corpus_path():
    """The real Tiny Shakespeare; without it, a test that needs it fails in CI and is skipped elsewhere."""
    path = Path(os.environ.get("GPTCLI_DATA_DIR", "")) / "tinyshakespeare.txt"
    if not path.is_file():
        message = "tinyshakespeare.txt is not in GPTCLI_DATA_DIR"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    return path


@pytest.fixture(scope="session")
def text_path(tmp_path_factory):
    """A text of about 6,000 characters that a model can learn something of, without a network."""
    sentence = "the cat sat on a mat and dogs ran by; we saw two birds fly? yes. ROMEO: here"
    words = [*sentence.split(), "now\n"]
    draw = random.Random(5)
    path = tmp_path_factory.mktemp("text") / "small.txt"
    path.write_text(" ".join(draw.choice(words) for _ in range(1600)), encoding="utf-8")
    return path


@pytest.fixture
def quick(text_path):
    """Overrides of a run that takes no time: a small text, 20 steps on one thread, an evaluation every 10."""
    return [
        "data=text_file",
        f"data.path={text_path}",
        "trainer.steps=20",
        "trainer.threads=1",
        "trainer.batch_size=4",
        "trainer.eval_every=10",
        "trainer.eval_tokens=256",
        "trainer.log_every=5",
        "trainer.checkpoint_every=10",
        "trainer.sample_every=0",
        "trainer.device=cpu",
        "trainer.compile=false",
    ]

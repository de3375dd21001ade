"""Fixtures that several test modules share."""

import os
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def corpus_path():
    """The real Tiny Shakespeare; a test that needs it fails in CI, and is skipped elsewhere, when it is not there."""
    path = Path(os.environ.get("GPTCLI_DATA_DIR", "")) / "tinyshakespeare.txt"
    if not path.is_file():
        message = "tinyshakespeare.txt is not in GPTCLI_DATA_DIR"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    return path

"""The cost of training against sums written out by hand."""

import pytest

from gptcli.analysis.flops import flops_per_token
from gptcli.model.config import ModelConfig

FINISHED = {
    "block_size": 8,
    "embedding_dim": 32,
    "lm_head": True,
    "num_layers": 3,
    "num_heads": 4,
    "attention": "multi_head",
    "feed_forward": "relu",
    "residual": True,
    "extra_projection": False,
    "norm": "layer_norm",
    "norm_placement": "pre",
    "final_norm": True,
    "position": "learned",
    "dropout": 0.0,
    "dropout_placement": "sublayer",
}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # Per block 12 C^2 = 12,288 weights; three blocks 36,864; the head 32 * 65 = 2,080: 38,944 weights.
        ({}, 6 * 38_944 + 12 * 3 * 8 * 32),
        ({"block_size": 16}, 6 * 38_944 + 12 * 3 * 16 * 32),
        ({"extra_projection": True}, 6 * (38_944 + 3 * 2 * 1024) + 12 * 3 * 8 * 32),
        # One head without projection: 3 C^2.
        (
            {
                "num_layers": 1,
                "num_heads": 1,
                "attention": "single_head",
                "feed_forward": "none",
                "norm": "none",
            },
            6 * (3 * 1024 + 2080) + 12 * 8 * 32,
        ),
        ({"num_layers": 0}, 6 * 2080),
        (
            {
                "num_layers": 0,
                "lm_head": False,
                "embedding_dim": None,
                "position": "none",
                "final_norm": False,
            },
            0,
        ),
    ],
)
def test_flops_per_token(changes, expected):
    assert flops_per_token(ModelConfig(**(FINISHED | changes)), 65) == expected

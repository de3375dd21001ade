"""Finished runs made by hand: run.json, metrics.jsonl and samples.txt as training writes them."""

import copy
import dataclasses
import json

import pytest
import torch

from gptcli.model.gpt import GPT
from gptcli.runs import Run
from gptcli.stages import stage_model

CONFIG = {
    "seed": 0,
    "stage": {"name": "4_10", "title": "The final layer normalization", "change": "c", "section": "4"},
    "model": {
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
    },
    "data": {
        "name": "tiny_shakespeare",
        "path": None,
        "validation_fraction": 0.1,
        "synthetic_seed": None,
        "synthetic_characters": None,
    },
    "optimizer": {"name": "adam", "learning_rate": 1e-3, "weight_decay": 0.0, "betas": [0.9, 0.999]},
    "schedule": {"name": "constant", "warmup_steps": 0, "final_fraction": 1.0},
    "recipe": {"name": "default"},
    "trainer": {
        "steps": 1000,
        "batch_size": 32,
        "eval_every": 250,
        "eval_tokens": 8192,
        "checkpoint_every": 1000,
        "keep_checkpoints": 1,
        "log_every": 100,
        "diagnostics": False,
        "sample_every": 0,
        "sample_tokens": 100,
        "sample_prompts": ["A"],
        "grad_clip": 0.0,
        "on_nonfinite": "stop",
        "device": "auto",
        "precision": "auto",
        "threads": 1,
        "compile": "auto",
    },
    "sweep": {"stop_on_failure": False, "workers": "auto"},
}
STAGES = {
    "4_7": {"norm": "none", "final_norm": False, "extra_projection": False},
    "4_8": {"norm": "none", "final_norm": False, "extra_projection": True},
    "4_9": {"norm": "layer_norm", "final_norm": False, "extra_projection": False},
    "4_10": {},
}
PARAMETERS = {"4_7": 41_921, "4_8": 48_257, "4_9": 42_305, "4_10": 42_369}
STEPS = (250, 500, 750, 1000)


def write_run(folder, *, stage="4_10", seed=0, loss=2.0, changes=None, **info):
    """Writes a run whose validation loss falls in a straight line by 0.75 to loss, and returns its folder.

    changes: dotted key -> value in the configuration; info: replaces keys of run.json.
    """
    folder.mkdir(parents=True)
    config = copy.deepcopy(CONFIG)
    config["seed"] = seed
    config["stage"] |= {"name": stage, "title": f"Stage {stage}"}
    config["model"] |= STAGES.get(stage, {})
    for key, value in (changes or {}).items():
        group, leaf = key.split(".")
        config[group][leaf] = value
    overrides = [
        f"stage={stage}",
        f"seed={seed}",
        *(f"{key}={value}" for key, value in (changes or {}).items()),
    ]
    record = {
        "format": 1,
        "version": "0.1.0",
        "status": "finished",
        "reason": None,
        "stage": stage,
        "title": f"Stage {stage}",
        "parameters": PARAMETERS.get(stage, 40_000),
        "seed": seed,
        "recipe": "default",
        "corpus": {
            "name": "tiny_shakespeare",
            "sha256": "ab" * 32,
            "vocabulary": [chr(code) for code in range(32, 97)],
            "characters": 1_115_394,
        },
        "step": 1000,
        "steps": config["trainer"]["steps"],
        "tokens": 256_000,
        "train_loss": loss - 0.1,
        "val_loss": loss,
        "best_val_loss": loss,
        "best_step": 1000,
        "full_val_loss": loss + 0.01,
        "full_val_loss_standard_error": 0.002,
        "floor": None,
        "seconds": 3.0,
        "tokens_per_second": 400_000.0,
        "created": "2027-01-05T14:03:22+00:00",
        "updated": "2027-01-05T14:03:25+00:00",
        "versions": {"gptcli": "0.1.0", "torch": "2.13.0", "python": "3.12.0"},
        "device": "cpu",
        "threads": 1,
        "precision": "fp32",
        "compiled": False,
        "git_revision": None,
        "overrides": overrides,
        "sweep": None,
        "config": config,
    } | info
    (folder / "run.json").write_text(json.dumps(record), encoding="utf-8")
    curve = [
        {
            "step": step,
            "val_loss": loss + (1000 - step) / 1000,
            "train_loss": loss - 0.1 + (1000 - step) / 1000,
        }
        for step in STEPS
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in curve), encoding="utf-8")
    (folder / "samples.txt").write_text(f"step 1000\nROMEO:\nseed {seed} of {stage}\n", encoding="utf-8")
    return folder


@pytest.fixture
def make_run(tmp_path):
    """A function that writes a run into a fresh folder and reads it back as a Run."""
    made = []

    def make(**settings):
        made.append(write_run(tmp_path / "runs" / f"run-{len(made)}", **settings))
        return Run(made[-1])

    return make


@pytest.fixture
def small_model():
    """A function that builds a stage's model small, in double precision, with no weight or bias at zero."""

    def build(stage="4_10", *, symbols=11, **changes):
        config = stage_model(stage)
        if config.lm_head:
            config = dataclasses.replace(config, embedding_dim=12, num_layers=min(config.num_layers, 2))
        config = dataclasses.replace(config, block_size=6, dropout=0.0)
        torch.manual_seed(5)
        model = GPT(dataclasses.replace(config, **changes), symbols).double().eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(0.4 * torch.randn(parameter.shape, dtype=torch.float64))
        return model

    return build


@pytest.fixture
def windows():
    """Inputs and targets (windows, time) of 11 symbols."""
    generator = torch.Generator().manual_seed(7)
    x = torch.randint(0, 11, (5, 6), generator=generator)
    return x, torch.randint(0, 11, (5, 6), generator=generator)

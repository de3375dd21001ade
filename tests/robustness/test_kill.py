"""A few of the kills that scripts/stress_kill.py makes by the hundred."""

import importlib.util
import random
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "stress_kill.py"


@pytest.fixture(scope="module")
def stress():
    """The script as a module."""
    specification = importlib.util.spec_from_file_location("stress_kill", SCRIPT)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_the_cases_hold_every_choice(stress):
    for key, choices in (
        ("stage", stress.STAGES), ("recipe", stress.RECIPES), ("optimizer", stress.OPTIMIZERS),
        ("schedule", stress.SCHEDULES), ("compile", ("false", "auto")),
    ):  # fmt: skip
        assert {case[key] for case in stress.cases()} == set(choices)


@pytest.mark.parametrize(
    ("stage", "recipe", "schedule"), [("5_4", "default", "cosine"), ("4_10", "walkthrough", "linear")]
)
def test_a_killed_run_ends_as_if_it_had_never_been(stage, recipe, schedule, stress, tmp_path):
    case = {"stage": stage, "recipe": recipe, "optimizer": "adamw", "schedule": schedule, "compile": "false"}
    text = stress.text_file(tmp_path)
    seen = stress.survived(case, text, tmp_path, 60, 3, random.Random(11))
    assert seen["differences"] == []
    assert seen["kills"] >= 1


def test_a_difference_is_seen(stress, tmp_path):
    """The comparison itself can fail: another seed, and a record with one line less."""
    case = stress.cases()[0]
    text = stress.text_file(tmp_path)
    for name, seed in (("a", 1), ("b", 2)):
        process = stress.started(["train", *stress.overrides(case, text, tmp_path / name, 30), f"seed={seed}"])
        process.join()
        assert process.exitcode == 0
    assert stress.differences(tmp_path / "a", tmp_path / "a") == []
    found = stress.differences(tmp_path / "a", tmp_path / "b")
    assert "metrics.jsonl" in found and "TensorBoard loss/validation" in found and "step_00000030: model" in found

"""The jobs of a sweep: their combinations in order, and names that are flat, distinct and short."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptcli.composition import hydra_session, prepare
from gptcli.errors import UserError
from gptcli.sweep.jobs import compose_jobs, expand, job_name


def expanded(*overrides):
    """Expands overrides as they are typed."""
    return expand(prepare(overrides, multirun=True))


def test_combinations_come_in_the_order_typed_the_last_key_fastest():
    combinations, varying = expanded("seed=range(0,2)", "trainer.steps=5", "model.num_heads=choice(1,2,4)")
    assert varying == ["seed", "model.num_heads"]
    assert combinations == [
        [f"seed={seed}", "trainer.steps=5", f"model.num_heads={heads}"] for seed in (0, 1) for heads in (1, 2, 4)
    ]


@pytest.mark.parametrize("override", ["optimizer.learning_rate=interval(0.1,0.2)"])
def test_a_search_without_listed_values_is_refused(override):
    with pytest.raises(UserError, match="a sweep needs listed values, such as a,b,c"):
        expanded(override)


def test_lists_and_quoted_values_are_one_value_each():
    combinations, _ = expanded("optimizer.betas=[0.9,0.95],[0.8,0.9]", "stage.title='a,b','c'")
    assert len(combinations) == 4
    assert combinations[0] == ["optimizer.betas=[0.9,0.95]", "stage.title='a,b'"]


def test_a_job_whose_settings_clash_is_marked_and_the_others_are_not():
    with hydra_session():
        jobs = compose_jobs(prepare(["stage=4_10", "model.num_heads=4,5,8"], multirun=True))
    assert [job.status for job in jobs] == ["waiting", "failed", "waiting"]
    assert "model.num_heads=5 does not divide" in jobs[1].reason and jobs[1].config is None
    assert [job.config.model.num_heads for job in jobs if job.config] == [4, 8]
    assert jobs[2].varies == {"model.num_heads": "8"}


@pytest.mark.parametrize(
    ("number", "width", "varies", "name"),
    [
        (3, 2, {"model.num_heads": "4", "seed": "1"}, "03-num_heads=4,seed=1"),
        (0, 1, {}, "0"),
        (1, 1, {"data.path": "/a/b.txt"}, "1-path=b.txt"),
        (1, 1, {"data.path": "C:\\x\\y z.txt"}, "1-path=C_x_y_z.txt"),
        (1, 1, {"stage": "4_10", "optimizer": "adamw"}, "1-stage=4_10,optimizer=adamw"),
        (0, 1, {"optimizer.betas": "[0.9,0.95]"}, "0-betas=_0.9_0.95_"),
        (0, 1, {"a.name": "x", "b.name": "y"}, "0-a.name=x,b.name=y"),
        (0, 1, {"data.path": "=/=?"}, "0-path=_"),
    ],
)
def test_names(number, width, varies, name):
    assert job_name(number, width, varies) == name


KEYS = st.sampled_from(["seed", "data.path", "model.num_heads", "optimizer.betas", "stage"])


@given(
    values=st.lists(st.dictionaries(KEYS, st.text(max_size=300), min_size=1), min_size=1, max_size=5),
)
def test_names_are_flat_distinct_and_short_whatever_varies(values):
    names = [job_name(number, 1, varies) for number, varies in enumerate(values)]
    assert len(set(names)) == len(names)
    for name in names:
        assert len(name) <= 100 and re.fullmatch(r"[\w.+=,-]+", name) and not name.startswith(".")
        assert "/" not in name and name not in (".", "..")

"""The ladder's files: each holds its change alone, and read without Hydra they give what Hydra composes."""

import dataclasses
import itertools

import pytest
import yaml

from gptcli import stages
from gptcli.composition import compose, hydra_session
from gptcli.config import Config, to_dict
from gptcli.errors import UserError
from gptcli.stages import config_directory, load_stage, natural_key, stage_model, stage_names
from gptcli.validation import validate

STAGES = stage_names()
GROUPS = {item.name for item in dataclasses.fields(Config) if dataclasses.is_dataclass(item.type)}


def _file(name):
    return yaml.safe_load((config_directory() / "stage" / f"{name}.yaml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def composed():
    """Stage -> Config, as Hydra makes it."""
    with hydra_session():
        return {name: compose([f"stage='{name}'"])[0] for name in STAGES}


@pytest.mark.parametrize("name", STAGES)
def test_read_without_hydra_equals_what_hydra_composes(composed, name):
    plain = to_dict(composed[name])
    assert load_stage(name) == {group: plain[group] for group in load_stage(name)}
    assert set(load_stage(name)) >= {"stage", "model", "optimizer", "trainer", "schedule", "data"}
    assert stage_model(name) == composed[name].model


@pytest.mark.parametrize("name", STAGES)
def test_every_stage_is_valid_and_named_after_its_file(composed, name):
    validate(composed[name])
    assert composed[name].stage.name == name
    assert composed[name].stage.section.replace(".", "_") == name


@pytest.mark.parametrize(("before", "name"), [*itertools.pairwise(STAGES)])
def test_a_stage_inherits_from_the_one_before_and_repeats_nothing(before, name):
    body = _file(name)
    assert body.pop("defaults") == [before, "_self_"]
    parent = load_stage(before)
    for group, values in body.items():
        assert group in GROUPS
        for key, value in values.items():
            assert parent[group][key] != value, f"{group}.{key} repeats its parent's value"


def test_the_documented_changes():
    """The architecture column of the ladder, stage by stage, as what differs from the stage before."""
    changes = {
        name: {
            f"{group}.{key}": value
            for group in ("model", "optimizer", "trainer")
            for key, value in load_stage(name)[group].items()
            if load_stage(before)[group][key] != value
        }
        for before, name in itertools.pairwise(STAGES)
    }
    size = {"embedding_dim": 384, "num_layers": 6, "num_heads": 6, "block_size": 256, "dropout": 0.2}
    assert {name: change for name, change in changes.items() if change} == {
        "3_7": {"model.embedding_dim": 32, "model.lm_head": True},
        "3_8": {"model.position": "learned"},
        "3_14": {"model.num_layers": 1, "model.attention": "single_head"},
        "3_18": {"optimizer.learning_rate": 1e-4},
        "4_2": {"model.attention": "multi_head", "model.num_heads": 4},
        "4_4": {"model.feed_forward": "relu"},
        "4_6": {"model.num_layers": 3},
        "4_7": {"model.residual": True},
        "4_8": {"model.extra_projection": True},
        "4_9": {"model.extra_projection": False, "model.norm": "layer_norm"},
        "4_10": {"model.final_norm": True},
        "5_4": {"model.dropout": 0.1},
        "5_11": {
            **{f"model.{key}": value for key, value in size.items()},
            "model.dropout_placement": "everywhere",
            "trainer.batch_size": 64,
            "optimizer.learning_rate": 3e-4,
        },
    }  # fmt: skip
    first = load_stage("2_9")
    assert (first["optimizer"]["learning_rate"], first["optimizer"]["name"]) == (1e-3, "adam")
    assert (first["trainer"]["batch_size"], first["trainer"]["steps"], first["model"]["block_size"]) == (
        32,
        10_000,
        8,
    )


def test_the_ladder_is_in_the_order_of_its_sections():
    numbers = [tuple(map(int, name.split("_"))) for name in STAGES]
    assert numbers == sorted(numbers) and len(set(numbers)) == 22
    assert sorted(["4_10", "4_2", "10_1", "my_4_10", "4_2b"], key=natural_key) == [
        "4_2", "4_2b", "4_10", "10_1", "my_4_10",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "hint"),
    [("4_11", "4_1"), ("410", "4_10"), ("4.10", "4_10"), ("bigram", "the stages are 2_9, 3_7")],
)
def test_an_unknown_stage_names_the_nearest(name, hint):
    with pytest.raises(UserError, match=f"unknown stage {name}.*{hint}"):
        load_stage(name)


def test_an_installed_package_finds_its_own_files(tmp_path, monkeypatch):
    """In a wheel the configuration lies inside the package, and the folder beside it is a stranger's."""
    package = tmp_path / "site-packages" / "gptcli"
    (package / "conf").mkdir(parents=True)
    (package.parent / "conf").mkdir()
    monkeypatch.setattr(stages, "__file__", str(package / "stages.py"))
    assert config_directory() == package / "conf"

"""Plain data into the typed schema: every type at its borders, every kind of mistake, and back again."""

import copy
import dataclasses
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gptcli.composition import compose, hydra_session
from gptcli.config import Config, from_dict, nearest, setting_keys, text_keys, to_dict
from gptcli.errors import UserError


@pytest.fixture(scope="module")
def plain():
    """The default configuration as plain data."""
    with hydra_session():
        return to_dict(compose([])[0])


def changed(plain, key, value):
    """Returns the Config of plain data with one dotted key set."""
    data = copy.deepcopy(plain)
    *groups, leaf = key.split(".")
    place = data
    for group in groups:
        place = place[group]
    place[leaf] = value
    config = from_dict(data)
    for part in key.split("."):
        config = getattr(config, part)
    return config


def test_there_and_back(plain):
    assert to_dict(from_dict(plain)) == plain
    assert isinstance(plain["optimizer"]["betas"], list)


# key, smallest and largest value allowed, and the nearest ones that are not.
BORDERS = [
    ("seed", 0, 2**32 - 1, -1, 2**32),
    ("model.block_size", 1, 2**53, 0, 2**53 + 1),
    ("model.embedding_dim", 1, 2**53, 0, 2**53 + 1),
    ("model.num_layers", 0, 2**53, -1, 2**53 + 1),
    ("model.num_heads", 1, 2**53, 0, 2**53 + 1),
    ("model.dropout", 0.0, 0.999999, -1e-9, 1.0),
    ("data.validation_fraction", 1e-9, 0.999999, 0.0, 1.0),
    ("optimizer.learning_rate", 1e-12, 1000.0, 0.0, 1000.1),
    ("optimizer.weight_decay", 0.0, 1000.0, -1e-9, 1000.1),
    ("schedule.warmup_steps", 0, 2**53, -1, 2**53 + 1),
    ("schedule.final_fraction", 0.0, 1.0, -0.1, 1.1),
    ("trainer.steps", 1, 2**53, 0, 2**53 + 1),
    ("trainer.batch_size", 1, 2**53, 0, 2**53 + 1),
    ("trainer.eval_every", 1, 2**53, 0, 2**53 + 1),
    ("trainer.eval_tokens", 1, 2**53, 0, 2**53 + 1),
    ("trainer.checkpoint_every", 1, 2**53, 0, 2**53 + 1),
    ("trainer.keep_checkpoints", 0, 2**53, -1, 2**53 + 1),
    ("trainer.log_every", 1, 2**53, 0, 2**53 + 1),
    ("trainer.sample_every", 0, 2**53, -1, 2**53 + 1),
    ("trainer.sample_tokens", 1, 100_000, 0, 100_001),
    ("trainer.grad_clip", 0.0, 1e9, -1e-9, 2.0**60),
    ("trainer.threads", 1, 1024, 0, 1025),
    ("sweep.workers", 1, 1024, 0, 1025),
]


@pytest.mark.parametrize(("key", "smallest", "largest", "too_small", "too_large"), BORDERS)
def test_ranges_at_their_borders(plain, key, smallest, largest, too_small, too_large):
    assert changed(plain, key, smallest) == smallest
    assert changed(plain, key, largest) == largest
    for wrong in (too_small, too_large):
        with pytest.raises(UserError, match=f"^{re.escape(key)}={re.escape(str(wrong))} "):
            changed(plain, key, wrong)


@pytest.mark.parametrize("betas", [[0.0, 0.999999], (0.9, 0.95), ["0.9", 0]])
def test_betas(plain, betas):
    assert changed(plain, "optimizer.betas", betas) == tuple(map(float, betas))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("optimizer.betas", [0.9], "has 1 values; 2 are needed"),
        ("optimizer.betas", [0.9, 0.9, 0.9], "has 3 values; 2 are needed"),
        ("optimizer.betas", [], "has 0 values; 2 are needed"),
        ("optimizer.betas", 0.9, "is not a list; write it as 'optimizer.betas=[a,b]'"),
        ("optimizer.betas", [0.9, 1.0], "must be below 1.0"),
        ("optimizer.betas", [-0.1, 0.9], "must be at least 0.0"),
        ("optimizer.betas", [0.9, None], "is not a number"),
        ("trainer.sample_prompts", "A", "is not a list"),
        ("trainer.sample_prompts", [["A"]], "is not text"),
        ("trainer.steps", 1.5, "is not a whole number"),
        ("trainer.steps", True, "is not a whole number"),
        ("trainer.steps", None, "is not a whole number"),
        ("trainer.steps", "many", "is not a whole number"),
        ("trainer.steps", float("inf"), "is not a whole number"),
        ("optimizer.learning_rate", float("nan"), "is not a finite number"),
        ("optimizer.learning_rate", float("inf"), "is not a finite number"),
        ("optimizer.learning_rate", False, "is not a number"),
        ("optimizer.learning_rate", [1], "is not a number"),
        ("model.residual", "maybe", "is not true or false"),
        ("model.residual", 2, "is not true or false"),
        ("model.residual", None, "is not true or false"),
        ("model.norm", "layernorm", "is not one of none, layer_norm; did you mean layer_norm?"),
        ("model.norm", ["layer_norm"], "is not one of none, layer_norm"),
        ("model.norm_placement", "middle", "is not one of pre, post"),
        ("model.attention", "multihead", "did you mean multi_head?"),
        ("model.position", "sinusoid", "did you mean sinusoidal?"),
        ("model", "4_10", "is not a group of settings"),
        ("trainer.threads", "some", "is not auto or a number of threads"),
        ("trainer.threads", 1.5, "is not auto or a number of threads"),
        ("trainer.compile", "maybe", "is not auto or true or false"),
        ("sweep.workers", "all", "is not auto or a number of jobs"),
        ("stage.name", True, "is not text"),
        ("stage.name", None, "is not text"),
        ("data.path", {"a": 1}, "is not text or null"),
    ],
)
def test_a_wrong_value_is_named_with_what_would_be_right(plain, key, value, message):
    with pytest.raises(UserError) as error:
        changed(plain, key, value)
    assert str(error.value).startswith(key) and message in str(error.value)


@pytest.mark.parametrize(
    ("key", "value", "typed"),
    [
        ("trainer.steps", "1e3", 1000),
        ("trainer.steps", 1000.0, 1000),
        ("trainer.steps", "0x10", None),
        ("optimizer.learning_rate", "1e-3", 0.001),
        ("optimizer.learning_rate", 1, 1.0),
        ("trainer.threads", "auto", "auto"),
        ("trainer.threads", "2", 2),
        ("trainer.compile", "auto", "auto"),
        ("trainer.compile", "off", False),
        ("trainer.compile", True, True),
        ("trainer.eval_tokens", None, None),
        ("trainer.eval_tokens", "null", None),
        ("data.path", None, None),
        ("stage.name", 410, "410"),
        ("trainer.sample_prompts", [], ()),
        ("trainer.sample_prompts", ["A", 7], ("A", "7")),
        *[("model.residual", word, False) for word in ("False", "FALSE", "no", "No", 0, "0", "off", False)],
        *[("model.residual", word, True) for word in ("True", "yes", 1, "1", "on", True)],
    ],
)
def test_values_are_converted(plain, key, value, typed):
    if typed is None and value is not None and value != "null":
        with pytest.raises(UserError):
            changed(plain, key, value)
        return
    converted = changed(plain, key, value)
    assert converted == typed and type(converted) is type(typed)


def test_a_missing_key_is_named(plain):
    data = copy.deepcopy(plain)
    del data["model"]["num_heads"]
    with pytest.raises(UserError, match=r"^model.num_heads is missing$"):
        from_dict(data)


@pytest.mark.parametrize(
    ("group", "key", "hint"),
    [
        ("model", "num_haeds", "did you mean model.num_heads?"),
        ("model", "n_heads", "did you mean model.num_heads?"),
        ("trainer", "max_steps", "did you mean trainer.steps?"),
        ("optimizer", "lr", "unknown key optimizer.lr"),
        (None, "modle", "unknown key modle"),
    ],
)
def test_an_unknown_key_is_refused_wherever_it_stands(plain, group, key, hint):
    data = copy.deepcopy(plain)
    (data[group] if group else data)[key] = 1
    with pytest.raises(UserError, match=re.escape(hint)):
        from_dict(data)


def test_every_key_of_the_documentation_is_there():
    documented = """
        seed stage.name stage.title stage.change model.embedding_dim model.num_layers
        model.num_heads model.block_size model.dropout model.attention model.feed_forward
        model.residual model.norm model.norm_placement model.final_norm model.position
        model.extra_projection trainer.steps trainer.batch_size trainer.eval_every
        trainer.checkpoint_every trainer.log_every trainer.device trainer.precision trainer.threads
        trainer.compile trainer.grad_clip optimizer.learning_rate optimizer.weight_decay
        optimizer.betas
    """
    assert set(documented.split()) <= set(setting_keys())
    assert text_keys() == {
        "stage.name",
        "stage.title",
        "stage.change",
        "stage.section",
        "data.name",
        "data.path",
        "trainer.device",
        "study.name",
        "study.question",
        "study.claim",
        "study.baseline",
        "study.x",
        "study.lines",
        "study.panels",
    }


def test_nothing_in_a_configuration_names_code(plain):
    """No key of the schema is a target or a class path, and no default value looks like one."""
    assert not [key for key in setting_keys() if "target" in key or "class" in key]
    assert "gptcli." not in repr(plain) and "torch." not in repr(plain)


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(value=st.recursive(VALUES, st.lists, max_leaves=4))
def test_anything_at_all_is_converted_or_refused(plain, value):
    for group in ("optimizer", "trainer"):
        for key in plain[group]:
            try:
                config = from_dict({**plain, group: {**plain[group], key: value}})
            except UserError as error:
                assert str(error).startswith(f"{group}.{key}=")
            else:
                assert to_dict(from_dict(to_dict(config))) == to_dict(config)


def test_nearest():
    assert nearest("num_haeds", ["num_heads", "num_layers"]) == "; did you mean num_heads?"
    assert nearest("x", ["num_heads"]) == ""


def test_the_schema_is_frozen(plain):
    with pytest.raises(dataclasses.FrozenInstanceError):
        from_dict(plain).seed = 1
    assert dataclasses.is_dataclass(Config)

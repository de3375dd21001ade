"""From typed overrides to a Config: stage names in every form, mistakes, paths with any character."""

import re
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gptcli.composition import compose, hydra_session, prepare, quoted, run_directory_path, typed
from gptcli.errors import UserError
from gptcli.stages import config_directory, config_groups, group_values, stage_names


def composed(*overrides, **more):
    """Returns the Config of overrides as they are typed."""
    prepared = prepare(overrides, **more)
    with hydra_session():
        return compose(prepared, config_directories=more.get("config_directories", ()))[0]


def swept(override):
    """Returns the stages that a sweep's override stands for, as Hydra's own parser reads what is prepared."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    (prepared,) = prepare([override], multirun=True)
    parsed = OverridesParser.create().parse_override(prepared)
    if not parsed.is_sweep_override():
        return [parsed.value()]
    return [one.split("=")[-1].strip("'\"") for one in parsed.sweep_string_iterator()]


@pytest.mark.parametrize("form", ["stage={}", "+stage={}", "++stage={}", "stage='{}'", 'stage="{}"'])
@pytest.mark.parametrize("name", ["2_9", "4_10"])
def test_one_stage_in_every_form(form, name):
    assert composed(form.format(name)).stage.name == name


@pytest.mark.parametrize(
    ("override", "stages"),
    [
        ("stage=4_9,4_10", ["4_9", "4_10"]),
        ("stage=4_9, 4_10", ["4_9", "4_10"]),
        ("stage='4_9',4_10", ["4_9", "4_10"]),
        ("+stage=4_9,4_10", ["4_9", "4_10"]),
        ("++stage=2_9,4_10", ["2_9", "4_10"]),
        ("stage=choice(4_9,4_10)", ["4_9", "4_10"]),
        ('stage=choice("4_9",4_10)', ["4_9", "4_10"]),
        ("stage=sort(4_9,4_2,reverse=true)", ["4_9", "4_2"]),
        ("stage=glob(4_1*)", ["4_1", "4_10"]),
        ("stage=glob('4_1*')", ["4_1", "4_10"]),
        ("stage=glob(4_10)", ["4_10"]),
        ("stage=glob(3_*,exclude=3_1*)", ["3_7", "3_8"]),
        ("stage=glob(3_*,exclude=3_14)", ["3_7", "3_8", "3_18"]),
        ("stage=glob([4_1,4_9,4_1*],exclude=[4_10])", ["4_1", "4_9"]),
        ("stage=glob(*,exclude=[4_*,5_*])", ["2_9", "3_7", "3_8", "3_14", "3_18"]),
    ],
)
def test_several_stages_in_every_form(override, stages):
    assert swept(override) == stages


def test_a_pattern_over_all_stages_keeps_the_order_of_the_ladder():
    assert swept("stage=glob(*)") == stage_names()


@pytest.mark.parametrize("override", ["stage=4_9,4_10", "seed=range(0,8)", "model.num_heads=1,2", "stage=glob(4_*)"])
def test_several_values_without_m_are_refused(override):
    with pytest.raises(UserError, match=r"names several values; sweep over them with: gptcli train -m"):
        prepare([override])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("stage=4_11", "unknown stage 4_11; did you mean 4_1"),
        ("stage=4_9,4_99", "unknown stage 4_99; did you mean 4_9"),
        ("stage=glob(7_*)", "stage=glob(7_*) matches nothing; use one of 2_9"),
        ("stage=[4_9,4_10]", "unknown stage ['4_9', '4_10']"),
        ("stage=", "unknown stage"),
        ("optimizer=adamm", "optimizer=adamm is not one of adam, adamw; did you mean adam?"),
        ("data=shakespeare", "did you mean tiny_shakespeare?"),
        ("recipe=null", "recipe=None is not one of default, walkthrough"),
        ("schedule=glob(x*)", "schedule=glob(x*) matches nothing"),
        ("~stage", "every setting has a value"),
        ("~model.num_heads", "every setting has a value"),
        ("seed", "'seed' is not KEY=VALUE"),
        ("--seed=1", "'--seed=1' is not KEY=VALUE"),
        ("model.num_heads=[1", "model.num_heads=[1 does not parse"),
    ],
)
def test_a_wrong_group_or_form_is_one_clear_line(override, message):
    with pytest.raises(UserError, match=re.escape(message)) as error:
        prepare([override], multirun=True)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("prefix", ["", "+", "++"])
@pytest.mark.parametrize(
    ("override", "hint"),
    [
        ("modle.num_heads=4", "did you mean model.num_heads?"),
        ("model.num_haeds=4", "did you mean model.num_heads?"),
        ("model.n_heads=4", "did you mean model.num_heads?"),
        ("optimiser.learning_rate=1", "did you mean optimizer.learning_rate?"),
        ("trainer.epochs=1", "unknown key trainer.epochs"),
        ("sede=1", "unknown key sede; did you mean seed?"),
        ("width=1", "unknown key width; the groups are data, "),
        ("stages=4_10", "did you mean stage?"),
        ("hydra.ouput_subdir=x", "did you mean hydra.output_subdir?"),
        ("hydra.run.dri=x", "did you mean hydra.run.dir?"),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_one(prefix, override, hint):
    with pytest.raises(UserError, match=re.escape(hint)):
        prepare([prefix + override])


@pytest.mark.parametrize("prefix", ["", "+", "++"])
def test_known_keys_with_every_prefix(prefix):
    assert composed("stage=4_10", f"{prefix}model.num_heads=8").model.num_heads == 8
    assert composed(f"{prefix}optimizer=adamw").optimizer.name == "adamw"


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("trainer.steps=1e3", "trainer.steps", 1000),
        ("trainer.steps=2_000", "trainer.steps", 2000),
        ("optimizer.learning_rate=1e-3", "optimizer.learning_rate", 0.001),
        ("optimizer.betas=[0.8,0.9]", "optimizer.betas", (0.8, 0.9)),
        *[(f"model.residual={word}", "model.residual", False) for word in ("False", "no", "0", "off", "false")],
        *[(f"model.final_norm={word}", "model.final_norm", True) for word in ("True", "yes", "1", "on", "'true'")],
        ("trainer.compile=no", "trainer.compile", False),
        ("stage.name=1e5", "stage.name", "1e5"),
        ("stage.name=4_10", "stage.name", "4_10"),
        ("stage.title=true", "stage.title", "true"),
        ("data.path=1e5", "data.path", "1e5"),
        ("data.path=null", "data.path", None),
        ("trainer.sample_prompts=[A,'B, c',7]", "trainer.sample_prompts", ("A", "B, c", "7")),
    ],
)
def test_values_arrive_typed(override, key, value):
    config = composed("stage=4_10", override)
    for part in key.split("."):
        config = getattr(config, part)
    assert config == value and type(config) is type(value)


@pytest.mark.parametrize(
    "path",
    [
        "a b.txt", "a=b.txt", "100%.txt", "me@home.txt", "#1.txt", "a&b.txt", "a,b.txt", "it's.txt", "1e5",
        'say "a".txt', "a(b)[c]{d}.txt", "ümläut.txt", "~a.txt", "a;b.txt", "$HOME.txt", "${seed}.txt",
        "back\\slash.txt",
        "true", "a\\", "a\\'b", "*?.txt", "a:b.txt", " a ", "'quoted'", "4_10",
    ],
)  # fmt: skip
def test_a_path_of_an_existing_file_is_taken_literally(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / path).write_text("x")
    assert composed("data=text_file", f"data.path={path}").data.path == path
    assert composed("data=text_file", f"data.path={tmp_path}/{path}").data.path == f"{tmp_path}/{path}"


@settings(max_examples=150, deadline=None)
@given(text=st.text(st.characters(blacklist_categories=("Cs", "Cc"))) | st.text("\\'\"${}a=", max_size=12))
@example(text="\\${")
def test_quoted_text_comes_back_as_it_was(text):
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from omegaconf import OmegaConf

    value = OverridesParser.create().parse_override(f"key={quoted(text)}").value()
    assert OmegaConf.create({"key": value}).key == text


def test_a_sweep_over_paths_keeps_its_commas(tmp_path):
    (override,) = prepare([f"data.path={tmp_path}/b.txt,{tmp_path}/d.txt"], multirun=True)
    assert override == f"data.path={tmp_path}/b.txt,{tmp_path}/d.txt"


@pytest.mark.parametrize("name", ["1e5", "a=b", "a b", "4_10", "x=y/${stage.name}"])
def test_a_run_directory_is_called_as_typed(name):
    prepared = prepare(["stage=4_9", f"hydra.run.dir={name}"])
    with hydra_session():
        _, node = compose(prepared)
        assert run_directory_path(node) == name.replace("${stage.name}", "4_9")


def test_default_run_directories_differ_between_two_starts_of_one_second():
    paths = set()
    for _ in range(4):
        with hydra_session():
            paths.add(run_directory_path(compose([])[1]))
    assert len(paths) == 4
    assert all(re.fullmatch(r"outputs/\d{4}-\d\d-\d\d/\d\d-\d\d-\d\d-4_10-[0-9a-f]+", path) for path in paths)


def test_the_default_is_the_finished_toy_model():
    config = composed()
    assert (config.stage.name, config.data.name, config.recipe.name, config.seed) == (
        "4_10",
        "auto",
        "default",
        42,
    )


def test_every_file_of_the_configuration_is_reachable():
    """A file that no override can name is dead."""
    directory = config_directory()
    files = {path.relative_to(directory) for path in directory.rglob("*") if path.is_file()}
    groups = {f"{group}/{value}.yaml" for group in config_groups() for value in group_values(group)}
    rest = {str(path) for path in files if path.name != "__init__.py"} - groups - {"config.yaml"}
    for path in rest:
        group, _, value = path.removesuffix(".yaml").rpartition("/")
        assert group.startswith("hydra/")
        composed(f"{group}={value}")


@pytest.mark.parametrize(
    ("group", "value"),
    [(group, value) for group in config_groups() if group != "stage" for value in group_values(group)],
)
def test_every_choice_of_every_group_composes(group, value):
    # A group inside another belongs to the file of its name, and a study is composed for a sweep.
    inside = [f"{group.rsplit('/', 1)[0]}={Path(group).name}"] if "/" in group else []
    config = composed(*inside, f"{group}={value}", multirun=group.startswith("study"))
    assert getattr(config, group.split("/")[0]) is not None


def test_the_walkthrough_recipe_wins_over_the_stage_and_yields_to_the_user():
    config = composed("recipe=walkthrough", "stage=5_11")
    assert (config.trainer.eval_every, config.trainer.eval_tokens) == (100, None)
    assert (config.trainer.batch_size, config.recipe.name) == (64, "walkthrough")
    assert composed("recipe=walkthrough", "trainer.eval_every=7").trainer.eval_every == 7


@pytest.fixture
def own(tmp_path):
    """A folder of the user's own with a stage that goes on from 4_10, and an optimizer."""
    folder = tmp_path / "my configs"
    (folder / "stage").mkdir(parents=True)
    (folder / "optimizer").mkdir()
    (folder / "stage" / "6_1.yaml").write_text(
        '# @package _global_\ndefaults: ["4_10", _self_]\n'
        "stage: {name: '6_1', title: Mine, change: deeper, section: '6.1'}\nmodel: {num_layers: 5}\n"
    )
    (folder / "stage" / "wide.yaml").write_text(
        '# @package _global_\ndefaults: ["6_1", {override /optimizer: quick}, _self_]\n'
        "stage: {name: wide, title: Wide, change: wider, section: none}\nmodel: {embedding_dim: 64}\n"
    )
    (folder / "optimizer" / "quick.yaml").write_text(
        "name: adamw\nlearning_rate: 0.01\nweight_decay: 0.1\nbetas: [0.9, 0.95]\n"
    )
    return str(folder)


def test_a_stage_of_the_users_own_inherits(own):
    config = composed("stage=6_1", config_directories=[own])
    assert (config.stage.name, config.stage.title) == ("6_1", "Mine")
    assert (config.model.num_layers, config.model.final_norm, config.model.num_heads) == (5, True, 4)
    assert composed("stage=6_1", "model.num_layers=2", config_directories=[own]).model.num_layers == 2


def test_own_stages_build_on_each_other_and_on_own_groups(own):
    config = composed("stage=wide", config_directories=[own])
    assert (config.model.embedding_dim, config.model.num_layers, config.optimizer.betas) == (
        64,
        5,
        (0.9, 0.95),
    )
    assert composed("optimizer=quick", config_directories=[own]).optimizer.weight_decay == 0.1


def test_own_stages_take_part_in_patterns_and_hints(own):
    (override,) = prepare(["stage=glob([6_*,w*])"], multirun=True, config_directories=[own])
    assert override == "stage='6_1','wide'"
    with pytest.raises(UserError, match="unknown stage wied; did you mean wide"):
        prepare(["stage=wied"], config_directories=[own])
    with pytest.raises(UserError, match="unknown stage 6_1"):
        prepare(["stage=6_1"])


def test_a_configuration_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UserError, match=r"--config-dir .*nowhere is not a folder"):
        composed("seed=1", config_directories=[str(tmp_path / "nowhere")])


def test_a_stray_key_in_a_file_of_the_users_own_is_refused(tmp_path):
    """Hydra merges it without a word; the typed schema does not know it."""
    (tmp_path / "stage").mkdir()
    (tmp_path / "stage" / "bad.yaml").write_text('# @package _global_\ndefaults: ["4_10"]\nmodel: {num_haeds: 8}\n')
    with pytest.raises(UserError, match=r"unknown key model.num_haeds; did you mean model.num_heads\?"):
        composed("stage=bad", config_directories=[str(tmp_path)])


@pytest.mark.parametrize("title", ["${seed}", "${nowhere}", "${oc.env:GPTCLI_NOT_SET}"])
def test_interpolations_resolve_or_are_refused(title):
    if title == "${seed}":
        assert composed(f"stage.title={title}", "seed=7").stage.title == "7"
        return
    with pytest.raises(UserError, match=r"nowhere|GPTCLI_NOT_SET"):
        composed(f"stage.title={title}")


def test_typed_ignores_hydras_own_node():
    with hydra_session():
        config, node = compose(["seed=3"])
    assert "hydra" in node and typed(node) == config

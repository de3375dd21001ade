"""Files of a stranger: nothing in them is executed, followed out of the run, allocated or sent raw to the terminal."""

import ast
import io
import json
import os
import pickle
import shutil
import struct
from pathlib import Path

import pytest
import torch

import gptcli
from gptcli.training.checkpoint import load_checkpoint

PACKAGE = Path(gptcli.__file__).parent
EVIL = "\x1b]0;owned\x07\x1b[31m<script>alert(1)</script>\u202e\x9b2J"
COMMANDS = [
    ["eval", "run"],
    ["generate", "run", "--tokens", "5"],
    ["resume", "run", "--steps", "7"],
    ["runs", "run"],
    ["runs", "run", "--json"],
    ["compare", "run"],
    ["diff", "4_10", "run"],
    ["inspect", "run", "--json"],
]


class Marker:
    """Leaves a file where a pickle of it is loaded."""

    def __reduce__(self):
        return os.mkdir, ("executed",)


def saved_in(run):
    (folder,) = (run / "checkpoints").glob("step_*")
    return folder


def is_clean(result):
    """No control character but newline and tab reaches the terminal, and no traceback."""
    text = result.out + result.err
    assert "Traceback" not in text and "GPTCLI_DEBUG" not in text, text
    raw = {character for character in text if not character.isprintable()} - {"\n", "\t"}
    assert not raw, raw
    return True


def test_no_line_of_the_package_can_execute_data():
    """pickle, eval and their like appear nowhere in the package's syntax trees."""
    modules = {"pickle", "marshal", "shelve", "dill", "joblib", "cloudpickle", "runpy", "code"}
    calls = {"eval", "exec", "compile", "__import__"}
    attributes = {
        ("torch", "load"), ("torch", "save"), ("yaml", "load"), ("yaml", "unsafe_load"), ("yaml", "full_load"),
        ("os", "system"), ("os", "popen"), ("np", "load"), ("numpy", "load"), ("hydra", "instantiate"),
        ("utils", "instantiate"), ("subprocess", "getoutput"),
    }  # fmt: skip
    files = sorted(PACKAGE.rglob("*.py"))
    assert len(files) > 60
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                assert not modules & {name.name.split(".")[0] for name in node.names}, path
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] not in modules, path
                assert not {"instantiate", "get_class", "get_method"} & {name.name for name in node.names}, path
            if isinstance(node, ast.Call):
                function = node.func
                if isinstance(function, ast.Name):
                    assert function.id not in calls, (path, node.lineno)
                if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
                    assert (function.value.id, function.attr) not in attributes, (path, node.lineno)
                assert not any(word.arg == "shell" for word in node.keywords), (path, node.lineno)


@pytest.fixture
def stranger(copied):
    """The copied run with traps in its .hydra folder and beside it."""
    hydra = copied / "run" / ".hydra"
    traps = {
        "config.yaml": "_target_: os.mkdir\npath: executed\nmodel: {_target_: os.mkdir, path: executed}\n"
        "seed: ${oc.env:SECRET}\nx: ${oc.decode:${oc.env:SECRET}}\n",
        "hydra.yaml": "hydra:\n  callbacks:\n    evil: {_target_: os.mkdir, path: executed}\n  searchpath: [file:///]\n",
        "overrides.yaml": "- +hydra.callbacks.evil._target_=os.mkdir\n",
    }
    for name, text in traps.items():
        (hydra / name).write_text(text)
    for folder in (copied, copied / "run", hydra):
        (folder / "hydra_plugins").mkdir()
        (folder / "hydra_plugins" / "evil.py").write_text("import os; os.mkdir('executed')")
        (folder / "sitecustomize.py").write_text("import os; os.mkdir('executed')")
        (folder / "conftest.py").write_text("import os; os.mkdir('executed')")
    return copied


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_traps_in_a_run_have_no_effect(arguments, stranger, call, monkeypatch):
    monkeypatch.setenv("SECRET", "do-not-tell")
    result = call(*arguments)
    assert result.status == 0, result.err
    assert "do-not-tell" not in result.out + result.err
    assert not list(stranger.rglob("executed"))


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "random.safetensors"])
@pytest.mark.parametrize("kind", ["pickle", "torch"])
def test_a_pickle_by_the_name_of_tensors_is_refused(name, kind, copied, call):
    """With a manifest that vouches for it, as its writer could make one."""
    import hashlib

    buffer = io.BytesIO()
    pickle.dump(Marker(), buffer) if kind == "pickle" else torch.save({"x": Marker()}, buffer)
    folder = saved_in(copied / "run")
    (folder / name).write_bytes(buffer.getvalue())
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest.pop("sha256")
    manifest["files"][name] = {
        "sha256": hashlib.sha256(buffer.getvalue()).hexdigest(), "size": len(buffer.getvalue())
    }  # fmt: skip
    digest = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    text = json.dumps({**manifest, "sha256": digest}, indent=1, sort_keys=True) + "\n"
    (folder / "manifest.json").write_text(text)
    for arguments in (["eval", "run"], ["generate", "run"], ["resume", "run", "--steps", "7"]):
        result = call(*arguments)
        assert result.status == 1 and name in result.err and is_clean(result)
    assert not (copied / "executed").exists()


# What a stranger may put into any field of run.json.
VALUES = {
    "text": EVIL,
    "list": [EVIL, [1]],
    "object": {EVIL: {"a": EVIL}},
    "huge": 10**400,
    "negative": -1,
    "nan": float("nan"),
    "infinite": float("inf"),
    "true": True,
    "null": None,
    "deep": json.loads("[" * 60 + "]" * 60),
}
FIELDS = [
    "format", "status", "reason", "stage", "title", "parameters", "seed", "recipe", "corpus", "floor", "step",
    "steps", "tokens", "train_loss", "val_loss", "best_val_loss", "best_step", "full_val_loss", "seconds",
    "full_val_loss_standard_error", "tokens_per_second", "created", "updated", "versions", "device", "threads",
    "precision", "git_revision", "overrides", "sweep", "config",
]  # fmt: skip


@pytest.mark.parametrize("kind", VALUES)
def test_any_value_in_any_field_of_run_json(kind, copied, call, rewritten):
    original = (copied / "run" / "run.json").read_bytes()
    for field in FIELDS:
        rewritten(copied / "run", **{field: VALUES[kind]})
        for arguments in (["runs", "run"], ["runs", "run", "--json"], ["compare", "run"], ["diff", "4_10", "run"]):
            result = call(*arguments)
            assert result.status in (0, 1, 2) and is_clean(result), (field, arguments)
            if "--json" in arguments:
                json.loads(result.out, parse_constant=lambda word: pytest.fail(word))
    (copied / "run" / "run.json").write_bytes(original)


@pytest.mark.parametrize("key", ["corpus", "config"])
@pytest.mark.parametrize("kind", VALUES)
def test_any_value_deeper_in_run_json(key, kind, copied, call, rewritten):
    info = json.loads((copied / "run" / "run.json").read_text(encoding="utf-8"))
    inner = info[key] | (info["config"]["model"] if key == "config" else {})
    for field in inner:
        changed = json.loads(json.dumps(info[key]))
        target = changed if field in changed else changed["model"]
        target[field] = VALUES[kind]
        rewritten(copied / "run", **{key: changed})
        for arguments in (["runs", "run"], ["compare", "run"], ["diff", "4_10", "run"]):
            result = call(*arguments)
            assert result.status in (0, 1, 2) and is_clean(result), (field, arguments)
        if key == "config" and kind in ("text", "huge", "null", "deep"):
            result = call("resume", "run", "--steps", 5)  # refused in any case: 5 steps are done
            assert result.status in (1, 2) and is_clean(result), field


@pytest.mark.parametrize("kind", ["text", "huge", "null"])
def test_any_value_in_the_state_of_a_checkpoint(kind, trained, tmp_path, monkeypatch, call, tampered):
    monkeypatch.chdir(tmp_path)
    shutil.copy(trained / "c.txt", tmp_path)
    fields = load_checkpoint(saved_in(trained / "run")).state
    progress = [("progress", one) for one in fields["progress"]]
    model = [("config", one) for one in fields["config"]] + [("vocabulary", None), ("corpus", None)]
    for group, field in [*progress, *model, ("batches", None)]:
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        shutil.copytree(trained / "run", tmp_path / "run")

        def change(state, group=group, field=field):
            if field is None:
                state[group] = VALUES[kind]
            else:
                state[group] = {**state[group], field: VALUES[kind]}

        tampered(tmp_path / "run", change)
        commands = [["resume", "run", "--steps", "6"]]
        if group != "progress":
            commands = [["eval", "run"], ["generate", "run", "--tokens", "3"], *commands]
        for arguments in commands:
            result = call(*arguments)
            assert result.status in (0, 1, 2) and is_clean(result), (group, field, arguments, result.err)


BIG = {
    "embedding_dim": 10**8,
    "num_layers": 10**9,
    "block_size": 10**12,
    "num_heads": 10**9,
}


@pytest.mark.parametrize("position", ["learned", "sinusoidal", "none"])
@pytest.mark.parametrize("key", BIG)
def test_a_checkpoint_that_asks_for_a_petabyte(key, position, copied, call, tampered, rewritten):
    def change(state):
        model = {**state["config"]["model"], "position": position, key: BIG[key]}
        state["config"] = {**state["config"], "model": model}

    tampered(copied / "run", change)
    info = json.loads((copied / "run" / "run.json").read_text(encoding="utf-8"))
    rewritten(copied / "run", config={**info["config"], "model": {**info["config"]["model"], key: BIG[key]}})
    for arguments in COMMANDS:
        if arguments[0] in ("eval", "generate", "resume", "diff", "inspect"):
            result = call(*arguments)
            assert is_clean(result)
            assert result.status in ((0, 2) if arguments[0] == "diff" else (1, 2)), (arguments, result)


def test_headers_of_tensors_that_lie(copied, call):
    """A shape of 2^60 numbers in a file of 100 bytes, a header longer than the file, offsets outside it."""
    import hashlib

    def header(entry):
        text = json.dumps({"x": entry}).encode()
        return struct.pack("<Q", len(text)) + text + bytes(16)

    lies = [
        header({"dtype": "F32", "shape": [2**60], "data_offsets": [0, 16]}),
        header({"dtype": "F32", "shape": [4], "data_offsets": [0, 2**62]}),
        header({"dtype": "F32", "shape": [-4], "data_offsets": [0, 16]}),
        header({"dtype": "O", "shape": [4], "data_offsets": [0, 16]}),
        struct.pack("<Q", 2**63) + bytes(16),
        b"",
    ]
    folder = saved_in(copied / "run")
    original = json.loads((folder / "manifest.json").read_text())
    original.pop("sha256")
    for data in lies:
        (folder / "model.safetensors").write_bytes(data)
        entry = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
        body = {**original, "files": {**original["files"], "model.safetensors": entry}}
        digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
        text = json.dumps({**body, "sha256": digest}, indent=1, sort_keys=True) + "\n"
        (folder / "manifest.json").write_text(text)
        result = call("eval", "run")
        assert result.status == 1 and "model.safetensors" in result.err and is_clean(result)


LINKS = {
    "checkpoints": "checkpoints",
    "a checkpoint": "checkpoints/step_00000005",
    "weights": "checkpoints/step_00000005/model.safetensors",
    "manifest": "checkpoints/step_00000005/manifest.json",
    "run.json": "run.json",
}


@pytest.mark.parametrize("kind", LINKS)
def test_links_inside_a_run_are_not_followed(kind, copied, call, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "target"
    path = copied / "run" / LINKS[kind]
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    before = sorted((one, one.stat().st_mtime_ns) for one in elsewhere.parent.rglob("*"))
    for arguments in (["eval", "run"], ["generate", "run"], ["resume", "run", "--steps", "7"]):
        result = call(*arguments)
        assert result.status in (1, 2) and is_clean(result), (arguments, result)
    assert sorted((one, one.stat().st_mtime_ns) for one in elsewhere.parent.rglob("*")) == before


@pytest.mark.parametrize("pointer", ["latest", "best"])
@pytest.mark.parametrize(
    "target", ["../../../outside", "/etc/passwd", "step_00000005/../../x", "step_1", "\x1b[31m", "x" * 5000, "\x00"]
)
def test_pointers_name_checkpoints_only(pointer, target, copied, call):
    (copied / "run" / "checkpoints" / pointer).write_text(target)
    result = call("eval", "run", *(["--best"] if pointer == "best" else []))
    assert result.status == 0 and is_clean(result)
    assert pointer in result.err and "step_00000005 instead" in result.err


def test_records_that_are_links_are_not_written_through(copied, call, tmp_path_factory):
    victim = tmp_path_factory.mktemp("victim") / "file"
    for name in ("metrics.jsonl", "samples.txt", "run.json", "train.log"):
        path = copied / "run" / name
        content = path.read_bytes()
        victim.write_bytes(content)
        path.unlink()
        path.symlink_to(victim)
        result = call("resume", "run", "--steps", "7")
        assert is_clean(result)
        assert victim.read_bytes() == content, name
        if result.status == 0:
            assert not path.is_symlink() or name == "train.log"
            return
        path.unlink()
        path.write_bytes(content)


def job(**changes):
    row = {
        "number": 0, "directory": "0-seed=1", "overrides": [], "varies": {"seed": "1"}, "status": "failed",
        "reason": "x", "parameters": 1, "val_loss": 1.0, "seconds": 1.0, "config": None,
    }  # fmt: skip
    return {**row, **changes}


SWEEPS = {
    "no object": [],
    "no jobs": {"format": 1},
    "jobs of a wrong type": {"format": 1, "jobs": 5},
    "a job of a wrong type": {"format": 1, "jobs": [5]},
    "newer": {"format": 2, "jobs": []},
    "outside": {"format": 1, "jobs": [job(directory="../outside")]},
    "absolute": {"format": 1, "jobs": [job(directory="/tmp/outside")]},
    "hidden": {"format": 1, "jobs": [job(directory=".hydra")]},
    "no text": {"format": 1, "jobs": [job(directory=5)]},
    "twice": {"format": 1, "jobs": [job(), job(number=1)]},
    "a link": {"format": 1, "jobs": [job(directory="link")]},
    "settings": {"format": 1, "jobs": [job(config={"seed": EVIL})]},
    "evil": {"format": 1, "jobs": [job(status=EVIL, reason=EVIL, varies={EVIL: EVIL}, overrides=[EVIL])]},
    "numbers": {"format": 1, "jobs": [job(parameters=EVIL, val_loss=[1], seconds=10**400, number=10**30)]},
    "deep": {"format": 1, "jobs": VALUES["deep"]},
    "null": {"format": 1, "jobs": [dict.fromkeys(job())]},
}


@pytest.mark.parametrize("kind", SWEEPS)
def test_the_record_of_a_strangers_sweep(kind, tmp_path, monkeypatch, call):
    (tmp_path / "outside").mkdir()
    sweep = tmp_path / "sweep"
    sweep.mkdir()
    monkeypatch.chdir(tmp_path)
    (sweep / "link").symlink_to(tmp_path / "outside")
    (sweep / "sweep.json").write_text(json.dumps(SWEEPS[kind]))
    result = call("resume", "sweep")
    assert result.status == 1 and is_clean(result)
    assert "is not the record of a sweep: " in result.err
    assert not list((tmp_path / "outside").iterdir())


def test_a_text_full_of_escape_sequences(copied, settings, call, tmp_path_factory):
    """A model that learned them prints them escaped; newline and tab are text."""
    (copied / "c.txt").write_text(("\x1b[31mred\x07\t\u202eabc\u200b\n" * 200), encoding="utf-8")
    result = call("train", *settings, "hydra.run.dir=evil")
    assert result.status == 0 and is_clean(result)
    result = call("generate", "evil", "--tokens", 400, "--seed", 2, "--temperature", 2)
    assert result.status == 0 and is_clean(result)
    assert "\\x1b" in result.out and "\\u202e" in result.out and "\n" in result.out and "\t" in result.out
    result = call("generate", "evil", "--samples", 2, "--prompt", "\x1b[31m\u202e")
    assert result.status == 0 and is_clean(result)
    for name in ("samples.txt", "train.log"):
        text = (copied / "evil" / name).read_text(encoding="utf-8")
        assert "\x1b" not in text and "\u202e" not in text


def test_html_in_a_run_reaches_no_page_as_such(copied, call, rewritten):
    pytest.importorskip("plotly")
    rewritten(copied / "run", stage=EVIL, title=EVIL, reason=EVIL)
    info = json.loads((copied / "run" / "run.json").read_text(encoding="utf-8"))
    settings = {**info["config"], "stage": dict.fromkeys(("name", "title", "change", "section"), EVIL)}
    rewritten(copied / "run", config=settings)
    (copied / "run").rename(copied / "<img src=x onerror=alert(1)>")
    result = call("compare", "<img src=x onerror=alert(1)>", "--html", "page.html")
    assert result.status == 0 and is_clean(result)
    page = (copied / "page.html").read_text(encoding="utf-8")
    assert "<script>alert(1)" not in page and "<img src=x" not in page

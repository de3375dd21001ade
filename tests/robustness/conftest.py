"""A folder of good and bad files and runs, and a way to call the command line in this process."""

import json
import os
import random
import shutil
from types import SimpleNamespace

import pytest

from gptcli.cli import main
from gptcli.training.checkpoint import load_checkpoint, save_checkpoint

# Settings of a run that takes a fraction of a second, on the text of the folder.
QUICK = (
    "data=text_file data.path=c.txt trainer.steps=5 trainer.threads=1 trainer.sample_tokens=5"
    " trainer.compile=false trainer.device=cpu trainer.eval_tokens=160 trainer.batch_size=4"
).split()


@pytest.fixture(scope="session")
def settings():
    """The settings of a quick run, as overrides."""
    return QUICK


@pytest.fixture(scope="session")
def text():
    """3,000 characters without structure, over letters that also spell ROMEO:."""
    draw = random.Random(1)
    return "".join(draw.choice("ROMEO: abcdefghij\nTthe") for _ in range(3000))


@pytest.fixture(scope="session")
def listing():
    """The function _listing."""
    return _listing


@pytest.fixture(scope="session")
def tampered():
    """The function _tampered."""
    return _tampered


@pytest.fixture(scope="session")
def rewritten():
    """The function _rewritten."""
    return _rewritten


def _listing(folder):
    """Returns name -> (size, time of change) of everything below folder but locks, and of folder itself."""
    found = {}
    for place, _, names in os.walk(folder):
        for path in [place, *(os.path.join(place, name) for name in names if name != ".lock")]:
            status = os.lstat(path)
            found[path] = (status.st_size, status.st_mtime_ns)
    return found


@pytest.fixture
def call(capsys):
    """Runs gptcli with arguments in this process; returns status, out and err."""

    def run(*arguments):
        capsys.readouterr()
        status = main([str(one) for one in arguments])
        out, err = capsys.readouterr()
        return SimpleNamespace(status=status, out=out, err=err)

    return run


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path_factory):
    """No test sees this machine's cache or terminal settings."""
    empty = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("GPTCLI_DATA_DIR", str(empty))
    monkeypatch.setenv("XDG_CACHE_HOME", str(empty))
    monkeypatch.delenv("GPTCLI_DEBUG", raising=False)


@pytest.fixture(scope="session")
def trained(tmp_path_factory, text):
    """A folder with c.txt and a finished run of it, to be copied."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "c.txt").write_text(text, encoding="utf-8")
    before = os.getcwd()
    os.chdir(folder)
    try:
        assert main(["train", *QUICK, "stage=4_10", "hydra.run.dir=run"]) == 0
    finally:
        os.chdir(before)
    return folder


@pytest.fixture
def copied(trained, tmp_path, monkeypatch):
    """A fresh copy of that folder, and where the test stands."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _tampered(run, change=lambda state: None, tensors=None):
    """Replaces a run's checkpoint by one with a right manifest but another state or other weights."""
    (folder,) = (run / "checkpoints").glob("step_*")
    checkpoint = load_checkpoint(folder)
    state = dict(checkpoint.state)
    change(state)
    shutil.rmtree(run / "checkpoints")
    save_checkpoint(
        run, checkpoint.step, tensors or checkpoint.model, checkpoint.optimizer, state, extra=checkpoint.extra,
        keep=2, best=True,
    )  # fmt: skip


def _rewritten(run, **changes):
    """Replaces fields of a run's run.json."""
    path = run / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **changes}), encoding="utf-8")

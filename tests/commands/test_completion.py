"""Shell completion: the words themselves, and the scripts in the shells that are installed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gptcli.cli import COMMANDS, main
from gptcli.commands.completion import completions

SCRIPTS = Path(sys.executable).parent


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("gptcli tr", ["train"]),
        ("gptcli re", ["resume"]),
        ("gptcli --v", ["--version"]),
        ("gptcli train stage=4_1", ["stage=4_1", "stage=4_10"]),
        ("gptcli train -m stage=4_9,5_1", ["stage=4_9,5_11", "stage=4_9,5_12", "stage=4_9,5_13", "stage=4_9,5_14"]),
        ("gptcli train model.num_h", ["model.num_heads="]),
        ("gptcli params optimizer=", ["optimizer=adam", "optimizer=adamw"]),
        ("gptcli train model.norm_placement=", ["model.norm_placement=pre", "model.norm_placement=post"]),
        ("gptcli train model.residual=t", ["model.residual=true"]),
        ("gptcli train trainer.threads=", ["trainer.threads=auto"]),
        ("gptcli train data=ti", ["data=tiny_shakespeare"]),
        ("gptcli train model.num_heads=", []),
        ("gptcli diff 4_9 4_1", ["4_1", "4_10"]),
        ("gptcli generate --top", ["--top-k", "--top-p"]),
        ("gptcli generate l", ["latest"]),
        ("gptcli completion z", ["zsh"]),
        ("gptcli data f", ["fetch"]),
        ("gptcli nonsense x", []),
        ("gptcli train --cf", ["--cfg"]),
    ],
)
def test_words(line, words):
    assert completions(line) == words


def test_every_command_is_offered_and_every_one_has_words():
    assert completions("gptcli ") == [*COMMANDS, "--help", "--version"]
    for command in COMMANDS:
        assert "--help" not in completions(f"gptcli {command} ")
        assert all(one.startswith("--") for one in completions(f"gptcli {command} --"))


def test_settings_are_offered_once_each_and_ready_for_a_value():
    offered = completions("gptcli train ")
    assert len(offered) == len(set(offered)) and all(one.endswith("=") for one in offered)
    assert {"stage=", "data=", "seed=", "model.num_heads=", "trainer.steps="} <= set(offered)


def test_words_are_printed_one_a_line(capsys):
    assert main(["completion", "words", "--", "gptcli train stage=4_1"]) == 0
    assert capsys.readouterr().out == "stage=4_1\nstage=4_10\n"
    assert main(["completion", "words"]) == 2
    assert main(["completion", "tcsh"]) == 2


def _shell(shell, script, tmp_path):
    """Runs a script in a shell that finds gptcli and no file of the user's; returns its lines."""
    environment = {**os.environ, "PATH": f"{SCRIPTS}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    ended = subprocess.run([shell, *script], capture_output=True, text=True, timeout=180, env=environment, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


# Sets what bash hands to a completion function, calls it, and prints what it answers.
_BASH = """
eval "$(gptcli completion bash)"
complete -p gptcli
compopt() { :; }
COMP_LINE="$1"; COMP_POINT=${#COMP_LINE}
_gptcli
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("gptcli sta", ["stages"]),
        # bash takes what stands before = as a word of its own, so only what comes after is answered.
        ("gptcli train stage=4_1", ["4_1", "4_10"]),
        ("gptcli train -m stage=4_9,4_1", ["4_9,4_1", "4_9,4_10"]),
        ("gptcli train model.num_h", ["model.num_heads="]),
        ("gptcli diff 5_1", ["5_11", "5_12", "5_13", "5_14"]),
    ],
)
def test_bash(line, words, tmp_path):
    lines = _shell("bash", ["--norc", "-c", _BASH, "bash", line], tmp_path)
    assert lines == ["complete -F _gptcli gptcli", *words]


def test_completion_runs_no_file_of_the_users(tmp_path):
    """Neither a folder's gptcli.py nor a stage file in the current folder is read."""
    (tmp_path / "gptcli.py").write_text("open('run', 'w')")
    (tmp_path / "conf" / "stage").mkdir(parents=True)
    (tmp_path / "conf" / "stage" / "4_111.yaml").write_text("x: ${oc.env:HOME}")
    assert _shell("bash", ["--norc", "-c", _BASH, "bash", "gptcli train stage=4_11"], tmp_path)[1:] == [""]
    assert not (tmp_path / "run").exists()


_ZSH = """
autoload -U compinit && compinit -u -d "$HOME/dump"
eval "$(gptcli completion zsh)"
compadd() { while [[ $1 != -- ]]; do shift; done; shift; print -l -- "$@"; }
words=(gptcli train stage=4_1); CURRENT=3
_gptcli
"""
_FISH = "gptcli completion fish | source; complete -C 'gptcli train stage=4_1'"


@pytest.mark.parametrize(("shell", "script"), [("zsh", ["-f", "-c", _ZSH]), ("fish", ["--no-config", "-c", _FISH])])
def test_other_shells(shell, script, tmp_path, capsys):
    """Where a shell is installed its script is run; the script itself is looked at everywhere."""
    assert main(["completion", shell]) == 0
    assert "gptcli completion words -- " in capsys.readouterr().out
    if shutil.which(shell):
        assert [line for line in _shell(shell, script, tmp_path) if line] == ["stage=4_1", "stage=4_10"]

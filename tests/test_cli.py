"""The entry point: help, exit statuses, errors in one line, and what is not imported for it."""

import subprocess
import sys
from pathlib import Path

import pytest

from gptcli import __version__
from gptcli.cli import COMMANDS, main

PYTHON = [sys.executable, "-m", "gptcli"]
INSTALLED = [str(Path(sys.executable).with_name("gptcli"))]


def run(command, folder, **environment):
    """Runs a command in a folder; returns (status, standard output, standard error)."""
    import os

    ended = subprocess.run(command, capture_output=True, cwd=folder, timeout=240, env={**os.environ, **environment})
    return ended.returncode, ended.stdout.decode(), ended.stderr.decode()


def test_help_lists_every_command_and_an_example(capsys):
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    for name, summary in COMMANDS.items():
        assert f"  {name}" in out and summary in out
    assert "gptcli train stage=4_10" in out


def test_no_command_is_wrong_use(capsys):
    assert main([]) == 2
    assert "COMMAND" in capsys.readouterr().out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself_with_an_example(name, capsys):
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert f"usage: gptcli {name}" in out and f"gptcli {name}" in out.split("example", 1)[1]


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"gptcli {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], "unknown command 'trian'; did you mean train?"),
        (["zzz"], "unknown command 'zzz'; the commands are train, resume"),
        (["stages", "--jsn"], "unrecognized arguments: --jsn (see gptcli stages --help)"),
        (["diff"], "the following arguments are required: A, B"),
        (["train", "\x1b[2J=1"], "\\x1b[2J"),
    ],
)
def test_wrong_use_is_one_line_and_status_2(arguments, message, capsys):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith("error: ")
    assert message in captured.err and len(captured.err.splitlines()) == 1 and "\x1b" not in captured.err


def test_an_unexpected_error_is_one_line_and_a_traceback_on_request(monkeypatch, capsys):
    from gptcli.commands import stages

    def broken(_arguments):
        raise ZeroDivisionError("by\nnothing")

    monkeypatch.setattr(stages, "run", broken)
    assert main(["stages"]) == 1
    error = capsys.readouterr().err
    assert error == "error: ZeroDivisionError: by\\nnothing (GPTCLI_DEBUG=1 shows where)\n"
    monkeypatch.setenv("GPTCLI_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        main(["stages"])


def test_ctrl_c_is_130(monkeypatch):
    from gptcli.commands import stages

    def interrupted(_arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(stages, "run", interrupted)
    assert main(["stages"]) == 130


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], ["stages"], ["diff", "4_9", "4_10"], ["runs"], ["completion", "bash"],
     ["completion", "words", "--", "gptcli train stage="], ["train", "--help"], ["generate", "--help"]],
)  # fmt: skip
def test_what_should_be_quick_imports_neither_torch_nor_hydra(arguments, tmp_path):
    code = (
        "import sys\nfrom gptcli.cli import main\n"
        f"try:\n    status = main({arguments!r})\nexcept SystemExit as ended:\n    status = ended.code\n"
        "heavy = {'torch', 'hydra', 'scipy', 'tensorboard', 'matplotlib'} & set(sys.modules)\n"
        "print(status, sorted(heavy), file=sys.stderr)"
    )
    _, _, error = run([sys.executable, "-c", code], tmp_path)
    assert error.splitlines()[-1] == "0 []"


@pytest.mark.parametrize("command", [PYTHON, INSTALLED], ids=["python -m", "installed"])
def test_from_another_folder(command, tmp_path):
    """The configuration is found, and a folder's own conf/ is none of its business."""
    (tmp_path / "conf" / "stage").mkdir(parents=True)
    (tmp_path / "conf" / "config.yaml").write_text("nonsense: [")
    status, out, error = run([*command, "stages"], tmp_path)
    assert (status, error) == (0, "") and "4_10" in out
    status, out, error = run([*command, "train", "stage=4_9", "--cfg", "job"], tmp_path)
    assert (status, error) == (0, "") and "num_heads: 4" in out
    status, out, error = run([*command, "train", "--help"], tmp_path)
    assert (status, error) == (0, "") and "usage: gptcli train" in out and "powered by" not in out.lower()
    status, out, error = run([*command, "train", "model.num_heads=5"], tmp_path)
    assert (status, out) == (2, "") and error.startswith("error: model.num_heads=5 does not divide")


def test_an_ascii_console_shows_what_it_can(tmp_path):
    """A sample or a name with other characters must not end a command."""
    status, _, error = run([*PYTHON, "diff", "4_9", "4_10ü"], tmp_path, PYTHONIOENCODING="ascii", LC_ALL="C")
    assert status == 2 and "4_10" in error and "\\xfc" in error and "Traceback" not in error


def test_output_into_a_reader_that_has_gone(tmp_path):
    status, out, error = run(["bash", "-c", f"{sys.executable} -m gptcli stages --json | head -1"], tmp_path)
    assert (status, out, error) == (0, "[\n", "")

"""gptcli data as a user types it."""

import json

import pytest

from gptcli.cli import main
from gptcli.data import catalogue


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    folder.mkdir()
    monkeypatch.setenv("GPTCLI_DATA_DIR", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user-cache"))
    return folder


def run(capsys, *arguments):
    status = main(["data", *arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_list_shows_what_is_cached(cache, capsys):
    (cache / "grimm.txt").write_text("Once upon a time", encoding="utf-8")
    status, out, err = run(capsys, "list")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert len(lines) == 1 + len(catalogue.CATALOGUE)
    assert lines[-1].split() == [
        "grimm",
        "Grimms'",
        "Fairy",
        "Tales",
        "yes",
        "16",
        "12",
        str(cache / "grimm.txt"),
    ]
    assert " no" in lines[1]


def test_list_as_json(cache, capsys):
    status, out, _ = run(capsys, "list", "--json")
    assert status == 0
    assert [one["name"] for one in json.loads(out)] == list(catalogue.CATALOGUE)


def test_path_and_fetch_of_a_cached_corpus_print_where_it_is(cache, capsys):
    (cache / "grimm.txt").write_text("Once upon a time", encoding="utf-8")
    for action in ("path", "fetch"):
        assert run(capsys, action, "grimm") == (0, f"{cache / 'grimm.txt'}\n", "")


def test_path_of_a_corpus_that_is_not_cached(cache, capsys):
    status, out, err = run(capsys, "path", "grimm")
    assert (status, out) == (1, "")
    assert err == "error: grimm is not cached; gptcli data fetch grimm downloads it\n"


def test_fetch_of_a_wrong_file_fails(cache, capsys):
    (cache / "tinyshakespeare.txt").write_text("wrong", encoding="utf-8")
    status, out, err = run(capsys, "fetch", "tiny_shakespeare")
    assert (status, out) == (1, "") and "is not Tiny Shakespeare" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fetch"], "fetch takes the name of a corpus"),
        (["list", "grimm"], "list takes no name"),
        (["path", "grim"], "did you mean grimm?"),
        (["fetch", "xyz"], "use one of tiny_shakespeare, gadsby"),
        (["fetch", "synthetic_play"], "made when it is used"),
        (["path", "grimm", "--json"], "--json goes with gptcli data list"),
        (["lost"], "invalid choice"),
    ],
)
def test_wrong_use(cache, capsys, arguments, message):
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert message in err and err.count("\n") == 1

"""Where the cache is on each platform, and files that appear whole or not at all."""

import os
from pathlib import Path

import pytest

from gptcli.data.cache import appearing, cache_directories, user_cache_directory, writable_directory
from gptcli.errors import RunError


@pytest.mark.parametrize(
    ("platform", "environment", "expected"),
    [
        ("linux", {"HOME": "/home/me"}, "/home/me/.cache/gptcli"),
        ("linux", {"HOME": "/home/me", "XDG_CACHE_HOME": "/fast"}, "/fast/gptcli"),
        ("linux", {"HOME": "/home/me", "XDG_CACHE_HOME": "relative"}, "/home/me/.cache/gptcli"),
        ("darwin", {"HOME": "/Users/me"}, "/Users/me/Library/Caches/gptcli"),
        ("win32", {"HOME": "/me", "LOCALAPPDATA": "/me/Local"}, "/me/Local/gptcli/cache"),
    ],
)
def test_the_user_cache_follows_the_platform(monkeypatch, platform, environment, expected):
    for variable in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setattr("sys.platform", platform)
    assert user_cache_directory() == Path(expected)


def test_the_chosen_folder_comes_first(cache, tmp_path, monkeypatch):
    assert cache_directories() == [cache, tmp_path / "user-cache" / "gptcli"]
    monkeypatch.setenv("GPTCLI_DATA_DIR", "")
    assert cache_directories() == [tmp_path / "user-cache" / "gptcli"]


def test_what_cannot_be_written_is_passed_over(cache, tmp_path):
    assert writable_directory() == cache and os.listdir(cache) == []
    cache.rmdir()
    cache.write_text("a file stands where the folder should be")
    assert writable_directory() == tmp_path / "user-cache" / "gptcli"


def test_nowhere_to_write_is_an_error(cache, tmp_path):
    cache.write_text("")
    (tmp_path / "user-cache").write_text("")
    with pytest.raises(RunError, match="cannot be written; set GPTCLI_DATA_DIR"):
        writable_directory()


def test_a_failed_write_leaves_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError), appearing(tmp_path / "file") as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("replace", "content"), [(False, b"first"), (True, b"second")])
def test_what_has_appeared_meanwhile(tmp_path, replace, content):
    path = tmp_path / "file"
    with appearing(path, replace) as file:
        file.write(b"second")
        path.write_bytes(b"first")
    assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["file"]


def test_a_disk_without_hard_links(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with appearing(tmp_path / "file") as file:
        file.write(b"whole")
    assert (tmp_path / "file").read_bytes() == b"whole"
    assert os.listdir(tmp_path) == ["file"]

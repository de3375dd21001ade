"""Which files may be overwritten, and that a failed write leaves nothing behind."""

import os

import pytest

from gptcli.analysis.output import CSV_START, MARK, check_target, write
from gptcli.errors import RunError, UserError


@pytest.mark.parametrize("content", ["", f'<meta content="{MARK}">', f"{CSV_START}more\n"])
def test_a_comparison_may_be_replaced(tmp_path, content):
    path = tmp_path / "out"
    path.write_text(content)
    check_target(path, "--html")


def test_another_file_may_not(tmp_path):
    path = tmp_path / "thesis.html"
    path.write_text("mine")
    with pytest.raises(UserError, match="exists and is not a comparison"):
        check_target(path, "--html")


def test_folders_are_named(tmp_path):
    with pytest.raises(UserError, match="is a folder"):
        check_target(tmp_path, "--csv")
    with pytest.raises(UserError, match="does not exist"):
        check_target(tmp_path / "none" / "a.csv", "--csv")


def test_write_replaces_and_leaves_no_other_file(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"old")
    write(path, b"new")
    assert path.read_bytes() == b"new" and os.listdir(tmp_path) == ["a.csv"]


def test_a_failed_write_names_the_file_and_leaves_nothing(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(RunError, match="folder was not written"):
        write(tmp_path / "folder", b"new")
    assert os.listdir(tmp_path) == ["folder"]

"""Reading text files: encodings, line ends, and files that are none."""

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptcli.data.text import TextReader, decode_text, read_text
from gptcli.errors import UserError


def written(folder, data, name="text.txt"):
    path = folder / name
    path.write_bytes(data)
    return path


def test_utf8_is_read_as_it_is(tmp_path):
    contents = read_text(written(tmp_path, "naïve 😀\n\tend".encode()))
    assert contents.text == "naïve 😀\n\tend"
    assert contents.notes == ()


@pytest.mark.parametrize(
    ("data", "text", "note"),
    [
        (b"\xef\xbb\xbfabc", "abc", "byte order mark"),
        (b"a\r\nb\r\n", "a\nb\n", "2 line ends"),
        (b"a\rb", "a\nb", "1 line ends"),
        (b"a\r\r\nb\r", "a\n\nb\n", "3 line ends"),
    ],
)
def test_marks_and_line_ends_are_normalized_and_said(tmp_path, data, text, note):
    contents = read_text(written(tmp_path, data))
    assert contents.text == text
    assert len(contents.notes) == 1 and note in contents.notes[0]


def test_a_mark_inside_the_text_stays(tmp_path):
    assert read_text(written(tmp_path, "a\ufeffb".encode())).text == "a\ufeffb"


@given(st.text(st.sampled_from("a\r\n\ufeffé😀"), min_size=1), st.integers(1, 7))
def test_pieces_of_any_size_give_the_same_text(tmp_path_factory, text, chunk_bytes):
    path = written(tmp_path_factory.mktemp("pieces"), text.encode())
    expected = text[1:] if text[0] == "\ufeff" else text
    expected = expected.replace("\r\n", "\n").replace("\r", "\n")
    reader = TextReader(path, chunk_bytes)
    if not expected:
        with pytest.raises(UserError, match="is empty"):
            list(reader)
        return
    assert "".join(reader) == expected
    assert reader.notes == decode_text(text.encode(), str(path)).notes


@pytest.mark.parametrize("chunk_bytes", [1, 2, 3, 100])
def test_what_is_not_utf8_is_named_with_its_place(tmp_path, chunk_bytes):
    data = "erste Zeile 😀\r\nzweite\n".encode() + "Straße".encode("cp1252")
    reader = TextReader(written(tmp_path, data), chunk_bytes)
    with pytest.raises(UserError) as caught:
        list(reader)
    assert f"byte 0xdf at offset {data.index(0xDF)} (line 3)" in str(caught.value)
    assert "cp1252" in str(caught.value) and "\n" not in str(caught.value)


def test_a_character_cut_off_at_the_end_is_not_utf8(tmp_path):
    with pytest.raises(UserError, match="byte 0xf0 at offset 2"):
        read_text(written(tmp_path, b"ab\xf0\x9f\x98"))


def test_surrogates_are_not_utf8(tmp_path):
    with pytest.raises(UserError, match="offset 1"):
        read_text(written(tmp_path, b"a\xed\xa0\x80"))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        (b"abc\0def", "zero byte at offset 3"),
        ("hello".encode("utf-16"), "UTF-16"),
    ],
)
def test_files_that_are_no_text(tmp_path, data, reason):
    with pytest.raises(UserError, match=reason):
        read_text(written(tmp_path, data))


def test_a_missing_file_says_where_it_was_looked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        UserError, match=r"absent\.txt does not exist \(relative paths start from .*\)"
    ) as caught:
        read_text("absent.txt")
    assert str(tmp_path) in str(caught.value)


def test_folders_pipes_and_impossible_names(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, reason in [
        (tmp_path, "is a folder"),
        (tmp_path / "pipe", "not a regular file"),
        (tmp_path / ("x" * 300), "too long"),
        ("a\0b", "cannot be read"),
    ]:
        with pytest.raises(UserError, match=reason):
            read_text(path)


def test_a_file_without_permission(tmp_path, monkeypatch):
    path = written(tmp_path, b"secret")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(UserError, match="permission denied"):
        read_text(path)


@pytest.mark.parametrize(
    "name", ["with blank.txt", "a=b.txt", "100%.txt", "@home#1&2.txt", "日本 é.txt", "-x.txt"]
)
def test_unusual_names(tmp_path, monkeypatch, name):
    written(tmp_path, b"fine", name)
    monkeypatch.chdir(tmp_path)
    assert read_text(name).text == "fine"


def test_a_line_of_ten_million_characters(tmp_path):
    assert len(read_text(written(tmp_path, b"x" * 10_000_000)).text) == 10_000_000


def test_the_locale_does_not_matter(tmp_path):
    path = written(tmp_path, "Größe €".encode())
    expected = ascii("Größe €")
    code = f"from gptcli.data.text import read_text; assert read_text({str(path)!r}).text == {expected}"
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)

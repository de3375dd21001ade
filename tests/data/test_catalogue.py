"""The known corpora in the cache: found, verified, never replaced."""

import hashlib

import pytest

from gptcli.data import catalogue
from gptcli.data.cache import appearing
from gptcli.data.catalogue import CATALOGUE, TINY_SHAKESPEARE, find_cached, read_verified, record_path
from gptcli.errors import RunError

ALICE = CATALOGUE["alice"]


def placed(folder, corpus, data):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / corpus.file_name
    path.write_bytes(data)
    return path


def test_the_books_of_the_walkthrough_are_known():
    assert set(CATALOGUE) == {
        "tiny_shakespeare", "gadsby", "bible", "moby_dick", "alice", "poe", "war_and_peace", "iliad", "grimm",
    }  # fmt: skip
    assert ALICE.url == "https://www.gutenberg.org/cache/epub/11/pg11.txt"
    assert all(corpus.url.startswith("https://") for corpus in CATALOGUE.values())
    assert [corpus.name for corpus in CATALOGUE.values() if not corpus.is_book] == ["tiny_shakespeare"]


def test_a_file_is_found_in_the_chosen_folder_before_the_user_cache(cache, tmp_path):
    assert find_cached(ALICE) is None
    second = placed(tmp_path / "user-cache" / "gptcli", ALICE, b"second")
    assert find_cached(ALICE) == second
    first = placed(cache, ALICE, b"first")
    assert find_cached(ALICE) == first


def test_the_real_corpus_has_the_known_hash(corpus_path):
    assert len(read_verified(TINY_SHAKESPEARE, corpus_path)) == 1_115_394


def test_a_wrong_file_is_named_and_left_alone(cache):
    path = placed(cache, TINY_SHAKESPEARE, b"not Shakespeare")
    with pytest.raises(RunError) as caught:
        read_verified(TINY_SHAKESPEARE, path)
    assert str(path) in str(caught.value)
    assert hashlib.sha256(b"not Shakespeare").hexdigest()[:12] in str(caught.value)
    assert path.read_bytes() == b"not Shakespeare"


def test_a_book_must_stay_what_it_was_at_first(cache):
    path = placed(cache, ALICE, b"Down the Rabbit-Hole")
    assert read_verified(ALICE, path) == b"Down the Rabbit-Hole"
    assert record_path(path).read_text() == hashlib.sha256(b"Down the Rabbit-Hole").hexdigest() + "\n"
    assert read_verified(ALICE, path) == b"Down the Rabbit-Hole"
    path.write_bytes(b"Down the rabbit hole")
    with pytest.raises(RunError, match=r"alice\.txt is not Alice"):
        read_verified(ALICE, path)


@pytest.mark.parametrize("record", [b"", b"\xff\xfe", b"\n"])
def test_a_damaged_record_is_said(cache, record):
    path = placed(cache, ALICE, b"Down the Rabbit-Hole")
    record_path(path).write_bytes(record)
    with pytest.raises(RunError, match=r"alice\.txt\.sha256 is damaged"):
        read_verified(ALICE, path)


def test_a_folder_that_cannot_be_written_does_not_prevent_reading(cache, tmp_path, monkeypatch):
    def refuse(path):
        if path.parent == cache:
            raise PermissionError(13, "Permission denied")
        return appearing(path)

    monkeypatch.setattr(catalogue, "appearing", refuse)
    path = placed(cache, ALICE, b"Down the Rabbit-Hole")
    assert read_verified(ALICE, path) == b"Down the Rabbit-Hole"
    record = tmp_path / "user-cache" / "gptcli" / "alice.txt.sha256"
    assert record.read_text().strip() == hashlib.sha256(b"Down the Rabbit-Hole").hexdigest()
    path.write_bytes(b"changed")
    with pytest.raises(RunError, match="is not Alice"):
        read_verified(ALICE, path)


def test_a_file_that_vanishes_is_an_error_in_one_line(cache):
    with pytest.raises(RunError, match="cannot be read: No such file"):
        read_verified(ALICE, cache / "alice.txt")

"""Loading corpora by name: splits, hashes, notes, the stand-in, and large files."""

import hashlib
import json
import math
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptcli.config import DataConfig
from gptcli.data import corpus as corpus_module
from gptcli.data import token_cache
from gptcli.data.catalogue import CATALOGUE, TINY_SHAKESPEARE
from gptcli.data.corpus import corpus_facts, load_corpus, without_licence
from gptcli.data.synthetic_play import generate
from gptcli.errors import RunError, UserError

BOOK = (
    "\ufeffThe Project Gutenberg eBook\r\n\r\n*** START OF THE PROJECT GUTENBERG EBOOK ALICE ***\r\n\r\n\r\n"
    "CHAPTER I.\r\nAlice was beginning to get very tired.\r\n\r\n\r\n"
    "*** END OF THE PROJECT GUTENBERG EBOOK ALICE ***\r\nLicence\r\n"
)


def settings(name, path=None, seed=0, characters=2000, validation_fraction=0.1):
    return DataConfig(name, path, validation_fraction, seed, characters)


def decoded(corpus):
    return corpus.tokenizer.decode(np.concatenate([corpus.train, corpus.validation]))


def written(folder, text, name="my text.txt"):
    path = folder / name
    path.write_bytes(text.encode())
    return str(path)


def test_tiny_shakespeare_is_split_as_in_the_walkthrough(corpus_path):
    corpus = load_corpus(settings("tiny_shakespeare"))
    text = corpus_path.read_text(encoding="utf-8")
    cut = int(0.9 * len(text))
    numbers = {character: number for number, character in enumerate(sorted(set(text)))}
    assert corpus.name == "tiny_shakespeare"
    assert corpus.sha256 == TINY_SHAKESPEARE.sha256
    assert len(corpus.train) == cut == 1_003_854
    assert corpus.train[:1000].tolist() == [numbers[character] for character in text[:1000]]
    assert corpus.validation.tolist() == [numbers[character] for character in text[cut:]]
    assert corpus.train.dtype == np.uint8 and corpus.notes == () and corpus.floor is None


def test_auto_is_tiny_shakespeare_where_that_is_cached(corpus_path):
    assert load_corpus(settings("auto")).name == "tiny_shakespeare"


def test_auto_downloads_tiny_shakespeare(serve, cache):
    text = b"To be, or not to be, that is the question.\n" * 50
    serve(TINY_SHAKESPEARE, text, sha256=hashlib.sha256(text).hexdigest())
    corpus = load_corpus(settings("auto"))
    assert (corpus.name, decoded(corpus)) == ("tiny_shakespeare", text.decode())
    assert (cache / "tinyshakespeare.txt").read_bytes() == text


def test_auto_without_a_network_is_the_synthetic_play_and_says_so(serve, cache):
    serve(TINY_SHAKESPEARE, lambda handler: handler.send_error(503))
    corpus = load_corpus(settings("auto"))
    assert corpus.name == "synthetic_play"
    assert decoded(corpus) == generate(0, 2000)
    assert len(corpus.notes) == 1
    assert "NOT TINY SHAKESPEARE" in corpus.notes[0] and "503" in corpus.notes[0]


def test_runs_of_one_process_do_not_change_corpus_when_the_network_comes_back(serve, server, cache):
    text = b"To be, or not to be."
    serve(TINY_SHAKESPEARE, lambda handler: handler.send_error(503), sha256=hashlib.sha256(text).hexdigest())
    assert load_corpus(settings("auto")).name == "synthetic_play"
    server.answers["/tinyshakespeare.txt"] = text
    assert load_corpus(settings("auto")).name == "synthetic_play"


def test_tiny_shakespeare_without_a_network_is_an_error(serve, cache):
    serve(TINY_SHAKESPEARE, lambda handler: handler.send_error(503))
    with pytest.raises(RunError, match="503"):
        load_corpus(settings("tiny_shakespeare"))


@pytest.mark.parametrize("name", ["auto", "tiny_shakespeare"])
def test_a_wrong_file_in_the_cache_is_an_error_for_both(cache, name):
    cache.mkdir()
    (cache / "tinyshakespeare.txt").write_text("something else")
    with pytest.raises(RunError, match=r"tinyshakespeare\.txt is not Tiny Shakespeare"):
        load_corpus(settings(name))
    assert (cache / "tinyshakespeare.txt").read_text() == "something else"


def test_a_book_loses_its_licence_and_nothing_else(serve, cache):
    serve(CATALOGUE["alice"], BOOK.encode())
    corpus = load_corpus(settings("alice"))
    text = "CHAPTER I.\nAlice was beginning to get very tired.\n"
    assert decoded(corpus) == text
    assert corpus.sha256 == hashlib.sha256(text.encode()).hexdigest()
    notes = " ".join(corpus.notes)
    assert "byte order mark" in notes and "line ends" in notes and "licence" in notes


def test_a_book_without_markers_is_used_whole():
    text, note = without_licence("no markers\n")
    assert text == "no markers\n" and "whole" in note
    assert without_licence("*** END OF X\n*** START OF X\n")[0] == "*** END OF X\n*** START OF X\n"


def test_a_text_file(cache, tmp_path):
    corpus = load_corpus(settings("text_file", written(tmp_path, "naïve 😀 words\r\n" * 30)))
    text = "naïve 😀 words\n" * 30
    assert (corpus.name, decoded(corpus)) == ("text_file", text)
    assert corpus.sha256 == hashlib.sha256(text.encode()).hexdigest()
    assert corpus.tokenizer.symbols == tuple(sorted(set(text)))
    assert len(corpus.train) == int(0.9 * len(text))
    assert "30 line ends" in corpus.notes[0]


@given(st.integers(1, 10**7))
def test_the_default_cut_is_that_of_the_walkthrough(length):
    assert int((1 - 0.1) * length) == int(0.9 * length)


def test_one_character_is_a_corpus(cache, tmp_path):
    corpus = load_corpus(settings("text_file", written(tmp_path, "a")))
    assert (len(corpus.train), len(corpus.validation), corpus.tokenizer.vocabulary_size) == (0, 1, 1)


def test_the_synthetic_play_keeps_its_alphabet_however_short(cache):
    corpus = load_corpus(settings("synthetic_play", seed=3, characters=500))
    assert decoded(corpus) == generate(3, 500)
    assert corpus.tokenizer.vocabulary_size == 65
    assert corpus.floor(8) < corpus.floor(1) < math.log(65)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (settings("tiny_shakespear"), "data=tiny_shakespear is not a corpus; did you mean tiny_shakespeare?"),
        (settings("xyz"), "use one of auto, tiny_shakespeare, gadsby"),
        (settings("text_file"), "needs data.path=FILE"),
        (settings("auto", path="x.txt"), "add data=text_file"),
        (settings("text_file", path="absent.txt"), "absent.txt does not exist"),
        (settings("synthetic_play", seed=-1), "synthetic_seed=-1"),
        (settings("synthetic_play", seed=None), "synthetic_seed=None"),
        (settings("synthetic_play", characters=0), "synthetic_characters=0"),
        (settings("synthetic_play", characters=10**15), "synthetic_characters=1000000000000000"),
    ],
)
def test_wrong_settings(cache, data, message):
    with pytest.raises(UserError) as caught:
        load_corpus(data)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.fixture
def mapped_from_one_byte(monkeypatch):
    monkeypatch.setattr(corpus_module, "MEMORY_MAP_BYTES", 1)


@pytest.mark.parametrize(
    "text", ["naïve 😀\r\nwords\n" * 5000, "".join(map(chr, range(32, 700))) * 20, "a\n"]
)
def test_a_large_file_gives_the_same_tokens_from_the_disk(cache, tmp_path, monkeypatch, text):
    path = written(tmp_path, text)
    plain = load_corpus(settings("text_file", path))
    monkeypatch.setattr(corpus_module, "MEMORY_MAP_BYTES", 1)
    for _ in range(2):
        mapped = load_corpus(settings("text_file", path))
        assert isinstance(mapped.train, np.memmap) and not mapped.train.flags.writeable
        assert (mapped.sha256, mapped.notes, mapped.train.dtype) == (
            plain.sha256,
            plain.notes,
            plain.train.dtype,
        )
        assert mapped.tokenizer.symbols == plain.tokenizer.symbols
        assert (mapped.train == plain.train).all() and (mapped.validation == plain.validation).all()


def test_a_file_that_has_not_changed_is_not_read_again(cache, tmp_path, monkeypatch, mapped_from_one_byte):
    path = written(tmp_path, "some words\n" * 100)
    first = load_corpus(settings("text_file", path))

    def never(*_):
        raise AssertionError("read again")

    monkeypatch.setattr(token_cache, "TextReader", never)
    assert (load_corpus(settings("text_file", path)).train == first.train).all()


def test_a_file_that_has_changed_is_read_again(cache, tmp_path, mapped_from_one_byte):
    path = written(tmp_path, "some words\n" * 100)
    load_corpus(settings("text_file", path))
    written(tmp_path, "other text\n" * 100)
    os.utime(path, ns=(1, 1))
    assert decoded(load_corpus(settings("text_file", path))) == "other text\n" * 100


def damage_description(cache, change):
    (name,) = cache.glob("tokens-*.json")
    description = json.loads(name.read_text())
    change(description)
    name.write_text(json.dumps(description))


@pytest.mark.parametrize(
    "damage",
    [
        lambda cache: next(cache.glob("tokens-*.json")).write_text("{"),
        lambda cache: next(cache.glob("tokens-*.json")).write_text("[]"),
        lambda cache: next(cache.glob("tokens-*.bin")).write_bytes(b"cut"),
        lambda cache: next(cache.glob("tokens-*.bin")).unlink(),
        lambda cache: damage_description(cache, lambda found: found.update(sha256="../../etc/passwd")),
        lambda cache: damage_description(cache, lambda found: found.update(characters=10**15)),
        lambda cache: damage_description(cache, lambda found: found.update(symbols=["b", "a"])),
        lambda cache: damage_description(cache, lambda found: found.update(format=99)),
    ],
)
def test_a_damaged_token_cache_is_made_again(cache, tmp_path, mapped_from_one_byte, damage):
    path = written(tmp_path, "some words\n" * 100)
    load_corpus(settings("text_file", path))
    damage(cache)
    assert decoded(load_corpus(settings("text_file", path))) == "some words\n" * 100


def test_a_large_file_that_is_no_text_leaves_nothing(cache, tmp_path, mapped_from_one_byte):
    (tmp_path / "binary").write_bytes(b"text" * 100 + b"\0")
    with pytest.raises(UserError, match="zero byte at offset 400"):
        load_corpus(settings("text_file", str(tmp_path / "binary")))
    assert not cache.exists() or os.listdir(cache) == []


def test_a_file_that_grows_while_it_is_read(cache, tmp_path, monkeypatch, mapped_from_one_byte):
    path = written(tmp_path, "some words\n" * 100)
    survey = token_cache._surveyed

    def surveyed_then_changed(path):
        result = survey(path)
        with open(path, "a", encoding="utf-8") as file:
            file.write("more")
        return result

    monkeypatch.setattr(token_cache, "_surveyed", surveyed_then_changed)
    with pytest.raises(RunError, match="changed while it was read"):
        load_corpus(settings("text_file", path))
    assert os.listdir(cache) == []


def test_a_full_disk_is_an_error_in_one_line(cache, tmp_path, monkeypatch, mapped_from_one_byte):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(token_cache, "appearing", full)
    with pytest.raises(RunError, match="cannot be kept: No space left on device"):
        load_corpus(settings("text_file", written(tmp_path, "some words")))


def test_facts_of_the_catalogue(cache):
    cache.mkdir()
    (cache / "alice.txt").write_text(BOOK, encoding="utf-8")
    (cache / "tinyshakespeare.txt").write_text("wrong")
    facts = {fact["name"]: fact for fact in corpus_facts()}
    assert list(facts) == list(CATALOGUE)
    alice = facts["alice"]
    assert alice["cached"] and alice["path"] == str(cache / "alice.txt") and alice["problem"] is None
    assert alice["characters"] == len("CHAPTER I.\nAlice was beginning to get very tired.\n")
    assert alice["vocabulary"] == len(set("CHAPTER I.\nAlice was beginning to get very tired.\n"))
    assert alice["bytes"] == len(BOOK.replace("\n", os.linesep).encode())
    assert "is not Tiny Shakespeare" in facts["tiny_shakespeare"]["problem"]
    assert facts["bible"]["cached"] is False and facts["bible"]["characters"] is None

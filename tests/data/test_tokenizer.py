"""The character vocabulary against Python's own dictionaries and strings."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptcli.data.tokenizer import CharacterTokenizer, UnknownCharacters, describe_difference
from gptcli.errors import UserError

any_character = st.characters(exclude_categories=())
texts = st.text(any_character, min_size=1)


@given(texts)
def test_numbers_are_places_in_the_sorted_set(text):
    tokenizer = CharacterTokenizer.from_text(text)
    numbers = {symbol: number for number, symbol in enumerate(sorted(set(text)))}
    assert tokenizer.symbols == tuple(sorted(set(text)))
    assert tokenizer.vocabulary_size == len(numbers)
    encoded = tokenizer.encode(text)
    assert encoded.dtype == np.int64
    assert encoded.tolist() == [numbers[character] for character in text]
    assert tokenizer.decode(encoded) == text


@given(texts, st.text(any_character))
def test_unknown_characters_are_found_wherever_they_are(vocabulary, text):
    tokenizer = CharacterTokenizer.from_text(vocabulary)
    unknown = {
        one: [place for place, other in enumerate(text) if other == one]
        for one in set(text) - set(vocabulary)
    }
    if unknown:
        with pytest.raises(UnknownCharacters) as caught:
            tokenizer.encode(text)
        assert caught.value.positions == unknown
        assert "\n" not in str(caught.value)
    else:
        assert tokenizer.decode(tokenizer.encode(text)) == text


@given(texts, st.text(any_character))
def test_known_keeps_the_known_characters_in_order(vocabulary, text):
    kept, left_out = CharacterTokenizer.from_text(vocabulary).known(text)
    assert kept == "".join(one for one in text if one in vocabulary)
    assert left_out == len(text) - len(kept)


def test_the_error_names_character_place_and_way_out():
    with pytest.raises(UserError) as caught:
        CharacterTokenizer("abc").encode("ab\x1bc é é é é")
    assert str(caught.value) == (
        "unknown characters '\\x1b' (U+001B) at character 3; ' ' (U+0020) at character 5, 7, 9, ...;"
        " 'é' (U+00E9) at character 6, 8, 10, ...; --skip-unknown leaves them out"
    )


def test_the_error_ends_in_the_hint_and_stays_short():
    with pytest.raises(UserError, match=r"; and 21 more; try this$") as caught:
        CharacterTokenizer("?").encode("abcdefghijklmnopqrstuvwxyz", hint="try this")
    assert len(str(caught.value)) < 250


def test_one_symbol_is_a_vocabulary():
    tokenizer = CharacterTokenizer("😀")
    assert tokenizer.encode("😀😀").tolist() == [0, 0]
    assert tokenizer.known("a😀\U0010ffff") == ("😀", 2)


@pytest.mark.parametrize(
    ("size", "dtype"), [(1, "uint8"), (256, "uint8"), (257, "uint16"), (65536, "uint16")]
)
def test_the_smallest_type_that_holds_all_numbers(size, dtype):
    symbols = [chr(code) for code in range(size + 2048) if not 0xD800 <= code < 0xE000][:size]
    assert CharacterTokenizer(symbols).dtype == dtype


@pytest.mark.parametrize("symbols", ["", "ba", "aa", ["ab"], [""], [1], [None]])
def test_what_is_no_vocabulary(symbols):
    with pytest.raises(ValueError, match="vocabulary"):
        CharacterTokenizer(symbols)


@pytest.mark.parametrize("ids", [[-1], [3], [0, 7]])
def test_numbers_outside_the_vocabulary_are_refused(ids):
    with pytest.raises(ValueError, match=r"0\.\.2"):
        CharacterTokenizer("abc").decode(ids)


def test_nothing_encodes_to_nothing():
    tokenizer = CharacterTokenizer("abc")
    assert tokenizer.encode("").shape == (0,)
    assert tokenizer.decode([]) == ""


def test_differing_vocabularies_are_described():
    first, second = CharacterTokenizer("\nabc"), CharacterTokenizer("abcdé")
    assert describe_difference(first, second) == "its vocabulary of 5 lacks '\\n' and adds 'd' 'é'"
    assert describe_difference(first, CharacterTokenizer("\nab")) == "its vocabulary of 3 lacks 'c'"
    assert describe_difference(first, first) == ""

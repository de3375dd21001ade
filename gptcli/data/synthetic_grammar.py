"""The grammar of the synthetic play: speakers, words, and the slots that a speech goes through.

Eight people speak. Each has a subject (love, war, trade or night), which fixes the nouns, the verbs and most
of the adjectives, and a manner (thou or you), which fixes how others are addressed. All else is the same for
everybody, so that a word either proves something about who is speaking or says nothing about it: few beliefs
about the speaker are possible, and the best possible loss can be computed.
"""

import math
import re
from functools import cache
from typing import NamedTuple

ALPHABET = "\n !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


class Choice(NamedTuple):
    """One text that a slot can hold, its weight relative to the others, and the slot that follows it."""

    text: str
    weight: float
    following: tuple


class Speaker(NamedTuple):
    """A person of the play: the name in capitals, what the talk is about, and how others are addressed."""

    name: str
    subject: str
    manner: str


SPEAKERS = (
    Speaker("JOVANNA", "love", "thou"),
    Speaker("XANTHUS", "war", "you"),
    Speaker("ZEBULON", "trade", "thou"),
    Speaker("WYCKHAM", "night", "you"),
    Speaker("BELLARD", "love", "you"),
    Speaker("QUILLFORD", "war", "thou"),
    Speaker("MISTRESS PYM", "trade", "you"),
    Speaker("OLD GRIZEL", "night", "thou"),
)

# The turn goes to the next person of the circle, back to the one before, or seldom to one of the others.
_TURNS = {1: 0.55, 2: 0.04, 3: 0.04, 4: 0.04, 5: 0.04, 6: 0.04, 7: 0.25}

_PERSONS = {
    "love": "lady lover maiden poet widow suitor bride cousin nurse minstrel youth darling",
    "war": "soldier captain king general archer rebel knight sergeant enemy rider giant prince",
    "trade": "merchant broker banker porter sailor tailor factor clerk usurer carrier debtor heir",
    "night": "witch spirit ghost watcher beggar shepherd dreamer hermit wanderer prophet wizard raven",
}
_THINGS = {
    "love": "heart letter kiss rose promise ring song lute vow smile garden blush ribbon glove tear",
    "war": "sword castle banner battle shield trumpet drum wall throne army helmet siege gate lance wound",
    "trade": "purse bargain cargo ledger silver market debt coin barrel wool ship harvest cellar bond profit",
    "night": "moon shadow candle grave storm forest lantern omen river owl darkness mirror bell fog midnight",
}
_VERBS = {
    "love": "love adore woo praise forgive charm miss trust embrace flatter cherish serenade",
    "war": "fight conquer defend strike besiege betray command fear assault obey challenge vanquish",
    "trade": "sell buy borrow lend count weigh steal owe deliver measure squander exchange",
    "night": "haunt follow summon curse hear watch dread bury awaken banish conjure whisper",
}
_QUALITIES = {
    "love": "sweet tender lovely bashful faithful golden jealous gracious modest beloved",
    "war": "bloody valiant iron mighty cruel loyal fearless savage royal stubborn",
    "trade": "rich cheap honest costly thrifty foreign empty heavy prudent bankrupt",
    "night": "pale dark silent hollow ancient weird starry cold lonely enchanted",
}
_SHARED_QUALITIES = "good old poor noble young"
_STATES = "weary merry content undone mad proud afraid lost alone here"
_EXCLAMATIONS = (
    "Alas! Come, Dear friends, Enough! Farewell; Gently! Ha! In truth, Joy! Kneel! Look: Marry, Nay, Oh, "
    "Peace! Quick! Run! Stay! Up! Vexing news! Well, Yes, Zounds!"
)
_OATHS = {"love": "By Cupid, ", "war": "By Mars, ", "trade": "By my beard, ", "night": "By starlight, "}
_VOCATIVES = {"thou": ["Sweet fool, ", "Good fellow, "], "you": ["Great lord, ", "Gentle sir, "]}
_MANNERS = {
    "thou": ("thou", "thy", "art", "shalt wilt dost canst"),
    "you": ("you", "your", "are", "shall will do can"),
}
_ADVERBS = (
    " tonight", " in vain", " at dawn", " by chance", " too well", " for a while", " over the hills",
    " with all speed", " like a fox", " under the oak", " o'er the sea", " upon my life",
)  # fmt: skip
_STAGE_BUSINESS = ("Alarum.", "Exeunt two servants.", "Flourish & drums.", "Thunder.", "Kettle-drums.")
_ENTRANCES = (".", ", reading.", ", with 3 torches.", ", counting $3.", ", in black.")


def inflected(word):
    """The plural of a noun, which is also the third person of a verb: ladies, kisses, buys."""
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "sh", "ch", "x")) else "s")


@cache
def slots():
    """The whole grammar: {slot: list of Choice}, where slot is (kind, number of the speaker)."""
    grammar = {}
    for number, speaker in enumerate(SPEAKERS):
        for kind, choices in _speech(speaker).items():
            grammar[kind, number] = [
                choice._replace(following=(choice.following, number)) for choice in choices
            ]
        grammar.update(_between_speeches(number, speaker))
    return grammar


def _speech(speaker):
    """The slots inside a speech; each choice names the kind of the slot that follows."""
    persons, things = _PERSONS[speaker.subject].split(), _THINGS[speaker.subject].split()
    verbs = _VERBS[speaker.subject].split()
    qualities = _SHARED_QUALITIES.split() + _QUALITIES[speaker.subject].split()
    _, possessive, being, auxiliaries = _MANNERS[speaker.manner]
    return {
        **_beginnings(speaker),
        "one": _words(0.7, persons, "does") + _words(0.3, qualities, "one"),
        "many": _words(0.7, map(inflected, persons), "do") + _words(0.3, qualities, "many"),
        "does": _words(0.7, map(inflected, verbs), "object")
        + _words(0.18, ["will", "must"], "verb")
        + _words(0.12, ["is"], "state"),
        "do": _words(0.7, verbs, "object")
        + _words(0.18, ["shall", "cannot"], "verb")
        + _words(0.12, ["are"], "state"),
        "second": _words(0.7, auxiliaries.split(), "verb") + _words(0.3, [being], "state"),
        "first": _words(0.7, ["will", "shall", "must", "would"], "verb") + _words(0.3, ["am"], "state"),
        "verb": _words(1.0, verbs, "object"),
        "object": _words(1.0, ["the", "my", "his", possessive, "no"], "thing"),
        "thing": _texts(0.75, things, "end") + _words(0.25, qualities, "thing"),
        "asked": _texts(0.75, [f"{thing}?\n" for thing in things], "line") + _words(0.25, qualities, "asked"),
        "state": _texts(1.0, _STATES.split(), "end"),
        "end": _scaled(0.82, _punctuation()) + _texts(0.18, _ADVERBS, "close"),
        "close": _punctuation(),
    }


def _beginnings(speaker):
    """The slots in which a speech, a line of verse or a clause begins."""
    pronoun, possessive, _, _ = _MANNERS[speaker.manner]
    clauses = (
        _texts(0.5, ["the ", "my ", f"{possessive} "], "one")
        + _texts(0.15, ["these ", "all "], "many")
        + _texts(0.12, [f"{pronoun} "], "second")
        + _texts(0.08, ["'tis "], "state")
    )
    first_person = _texts(0.15, ["I "], "first")
    sentences = [choice._replace(text=_capitalized(choice.text)) for choice in clauses] + first_person
    exclamations = [f"{text.strip()} " for text in re.findall("[^!,:;]+[!,:;]", _EXCLAMATIONS)]
    links = ["And ", "But ", "For ", "Though ", "Until ", "Yet "]
    questions = ["Where is the ", "Who hath the ", "Who seeks a "]
    return {
        "clause": clauses + first_person,
        "line": _texts(0.3, ["\n"], "turn")
        + _scaled(0.45, sentences)
        + _texts(0.15, links, "clause")
        + _texts(0.1, questions, "asked"),
        "next line": _scaled(0.5, sentences) + _texts(0.5, links, "clause"),
        "opening": _scaled(0.4, sentences)
        + _texts(0.6, [_OATHS[speaker.subject], *_VOCATIVES[speaker.manner], *exclamations], "clause"),
    }


def _punctuation():
    """What can stand at the end of a clause."""
    return (
        _texts(0.5, [".\n", "!\n"], "line")
        + _texts(0.25, [",\n", ";\n"], "next line")
        + _texts(0.25, [", and ", "; ", ": ", " when ", " -- "], "clause")
    )


def _between_speeches(number, speaker):
    """The slots from the end of one speech to the name of the next speaker, who may enter first."""
    turns = [((number + step) % len(SPEAKERS), weight) for step, weight in _TURNS.items()]
    names = [Choice(f"{SPEAKERS[other].name}:\n", weight, ("opening", other)) for other, weight in turns]
    entrances = [
        Choice(f"Enter {SPEAKERS[other].name}", weight, ("entrance", other)) for other, weight in turns
    ]
    return {
        ("turn", number): _scaled(0.82, names)
        + _scaled(0.12, entrances)
        + _texts(0.06, [f"{text}\n\n" for text in _STAGE_BUSINESS], ("name", number)),
        ("name", number): names,
        ("entrance", number): _texts(1.0, [f"{text}\n\n" for text in _ENTRANCES], ("entered", number)),
        ("entered", number): [Choice(f"{speaker.name}:\n", 1.0, ("opening", number))],
    }


def _capitalized(text):
    return "'Tis " if text == "'tis " else text[0].upper() + text[1:]


def _words(total, words, following):
    return _texts(total, [f"{word} " for word in words], following)


def _texts(total, texts, following):
    """Choices whose weights fall as 1 / (rank + 5), after Zipf and Mandelbrot, and add up to total."""
    return _scaled(total, [Choice(text, 1 / (rank + 5), following) for rank, text in enumerate(texts)])


def _scaled(total, choices):
    whole = math.fsum(choice.weight for choice in choices)
    return [choice._replace(weight=choice.weight * total / whole) for choice in choices]

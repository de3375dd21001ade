"""The corpora that gptcli knows by name, and what is in the cache of them."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from gptcli.data.cache import appearing, cache_directories
from gptcli.errors import RunError


@dataclass(frozen=True)
class KnownCorpus:
    """A text that can be downloaded.

    sha256: of the file, when it never changes. Project Gutenberg revises its books, so that theirs is
    recorded in a file beside the text when it is first used, and must stay the same from then on.
    """

    name: str
    title: str
    url: str
    file_name: str
    sha256: str | None = None

    @property
    def is_book(self):
        """Whether the text is wrapped in Project Gutenberg's header and licence."""
        return self.sha256 is None


def _book(name, title, number, url="https://www.gutenberg.org/cache/epub/{0}/pg{0}.txt"):
    return KnownCorpus(name, title, url.format(number), f"{name}.txt")


TINY_SHAKESPEARE = KnownCorpus(
    "tiny_shakespeare",
    "Tiny Shakespeare",
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
    "tinyshakespeare.txt",
    "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
)
CATALOGUE = {
    corpus.name: corpus
    for corpus in (
        TINY_SHAKESPEARE,
        _book("gadsby", "Gadsby (Wright)", 47367, "https://www.gutenberg.org/files/{0}/{0}-0.txt"),
        _book("bible", "The King James Bible", 10),
        _book("moby_dick", "Moby Dick (Melville)", 2701),
        _book("alice", "Alice's Adventures in Wonderland (Carroll)", 11),
        _book("poe", "The Works of Edgar Allan Poe, volume 1", 2147),
        _book("war_and_peace", "War and Peace (Tolstoy)", 2600),
        _book("iliad", "The Iliad (Homer)", 6130),
        _book("grimm", "Grimms' Fairy Tales", 2591),
    )
}


def find_cached(corpus):
    """The path of a known corpus in the cache, or None; its content is not looked at."""
    paths = [folder / corpus.file_name for folder in cache_directories()]
    return next((path for path in paths if path.is_file()), None)


def read_verified(corpus, path):
    """The bytes of a cached corpus.

    Raises:
        RunError: the file cannot be read, or is not what was downloaded; it is left where it is.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}") from error
    found = hashlib.sha256(data).hexdigest()
    wanted = corpus.sha256 or _recorded(corpus, path, found)
    if found != wanted:
        raise RunError(
            f"{path} is not {corpus.title} as expected: its sha256 is {found[:12]}..., not {wanted[:12]}...;"
            f" move it away, then download it by gptcli data fetch {corpus.name}"
        )
    return data


def _recorded(corpus, path, found):
    """The sha256 that was recorded when the file was first used, which may be now."""
    records = [record_path(folder / corpus.file_name) for folder in (path.parent, *cache_directories())]
    record = next((record for record in records if record.is_file()), None)
    if record is None:
        _record(records, found)
        return found
    try:
        return record.read_text(encoding="ascii").split()[0]
    except (OSError, ValueError, IndexError) as error:
        raise RunError(f"{record} is damaged; delete it if you trust {path.name}") from error


def _record(records, digest):
    for record in records:
        try:
            record.parent.mkdir(parents=True, exist_ok=True)
            with appearing(record) as file:
                file.write(f"{digest}\n".encode("ascii"))
            return
        except OSError:
            continue


def record_path(path):
    """Where the sha256 of a file that has no known one is recorded."""
    return Path(f"{path}.sha256")

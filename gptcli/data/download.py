"""Downloading a known corpus into the cache: whole and verified, or not at all."""

import contextlib
import hashlib
import socket
import sys
import threading
import time
from urllib.parse import urlsplit

from gptcli.data.cache import appearing, writable_directory
from gptcli.errors import RunError

SILENCE_SECONDS = 5.0
_LIMIT_BYTES = 64 * 2**20
_CHUNK_BYTES = 2**16


class DownloadFailed(RunError):
    """A corpus could not be downloaded; reason is the cause alone."""

    def __init__(self, corpus, path, reason):
        self.reason = reason
        super().__init__(
            f"{corpus.title} could not be downloaded: {reason};"
            f" to put it there by hand, save {corpus.url} as {path}"
        )


def download(corpus, total_seconds=None):
    """Downloads a known corpus and returns its path in the cache.

    Args:
        total_seconds: gives up after that time even if data still comes.
    Raises:
        DownloadFailed: no connection, an error of the server, a transfer cut short, not the wanted file.
        RunError: the cache folder cannot be written.
    """
    from http.client import HTTPException

    path = writable_directory() / corpus.file_name
    deadline = time.monotonic() + total_seconds if total_seconds else None
    try:
        with contextlib.closing(_open(corpus.url)) as response, appearing(path) as file:
            expected = _content_length(response)
            digest = hashlib.sha256()
            with _Progress(corpus, expected) as progress:
                for data in _chunks(response, deadline):
                    file.write(data)
                    digest.update(data)
                    progress.update(len(data))
            _check(corpus, progress.received, expected, digest.hexdigest())
    except _Refused as error:
        raise DownloadFailed(corpus, path, str(error)) from None
    except (OSError, HTTPException) as error:
        raise DownloadFailed(corpus, path, _reason(error)) from error
    return path


class _Refused(Exception):
    """What came is not what was asked for."""


def _open(url):
    """Opens a URL, in a thread because looking up a name cannot be given a time limit."""
    outcome = {}

    def work():
        try:
            response = _opener().open(url, timeout=SILENCE_SECONDS)
            if outcome.get("late"):
                response.close()
            outcome["response"] = response
        except Exception as error:
            outcome["error"] = error

    if urlsplit(url).scheme not in ("http", "https"):
        raise _Refused(f"{url} is not an http or https address")
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(SILENCE_SECONDS)
    if "response" in outcome:
        return outcome["response"]
    if "error" not in outcome:
        outcome["late"] = True
        raise _Refused(f"no answer within {SILENCE_SECONDS:g} seconds")
    raise outcome["error"]


def _opener():
    """An opener that knows http and https and nothing else, and never goes from https back to http."""
    from urllib import request

    class Redirects(request.HTTPRedirectHandler):
        def redirect_request(self, old, file, code, message, headers, new_url):
            scheme = urlsplit(new_url).scheme
            if scheme not in ("http", "https") or (old.type == "https" and scheme == "http"):
                raise _Refused(f"the server redirects to {scheme or 'nowhere'}")
            return super().redirect_request(old, file, code, message, headers, new_url)

    opener = request.OpenerDirector()
    for handler in (
        request.ProxyHandler,
        request.HTTPHandler,
        request.HTTPSHandler,
        request.HTTPDefaultErrorHandler,
        request.HTTPErrorProcessor,
        Redirects,
    ):
        opener.add_handler(handler())
    opener.addheaders = [("User-Agent", "gptcli"), ("Accept-Encoding", "identity")]
    return opener


def _content_length(response):
    length = response.headers.get("Content-Length", "")
    expected = int(length) if length.isascii() and length.isdigit() else None
    if expected is not None and expected > _LIMIT_BYTES:
        raise _Refused(f"the file is too large ({expected:,} bytes)")
    return expected


def _chunks(response, deadline):
    received = 0
    # read1 returns what one packet brought, so that a server that drips cannot hold the clock up.
    while data := response.read1(_CHUNK_BYTES):
        received += len(data)
        if received > _LIMIT_BYTES:
            raise _Refused(f"the file is too large (over {_LIMIT_BYTES:,} bytes)")
        if deadline and time.monotonic() > deadline:
            raise _Refused("the download is too slow")
        yield data


def _check(corpus, received, expected, digest):
    if expected is not None and received != expected:
        raise _Refused(f"the transfer broke off after {received:,} of {expected:,} bytes")
    if not received:
        raise _Refused("the server sent an empty file")
    if corpus.sha256 and digest != corpus.sha256:
        raise _Refused(f"the server sent another file (sha256 {digest[:12]}..., not {corpus.sha256[:12]}...)")


def _reason(error):
    cause = getattr(error, "reason", error)
    if getattr(error, "code", None):
        return f"the server answers {error.code} {' '.join(str(cause).split())}"
    if isinstance(cause, TimeoutError):
        return f"no answer within {SILENCE_SECONDS:g} seconds"
    if isinstance(cause, socket.gaierror):
        return "the server's name cannot be looked up (no network?)"
    return " ".join(str(getattr(cause, "strerror", None) or cause).split()) or type(cause).__name__


class _Progress:
    """A bar on a terminal, one line elsewhere."""

    def __init__(self, corpus, expected):
        self.received = 0
        self._bar = None
        if sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(desc=corpus.title, total=expected, unit="B", unit_scale=True, leave=False)
        else:
            size = f" ({expected / 1e6:.1f} MB)" if expected else ""
            print(f"downloading {corpus.title}{size} from {urlsplit(corpus.url).netloc}", file=sys.stderr)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._bar is not None:
            self._bar.close()

    def update(self, count):
        """Counts bytes that have come."""
        self.received += count
        if self._bar is not None:
            self._bar.update(count)

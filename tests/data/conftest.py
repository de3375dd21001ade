"""A cache of its own for every test, and servers that behave well or badly."""

import dataclasses
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gptcli.data import corpus


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache folder, and nothing left of earlier tries to download."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("GPTCLI_DATA_DIR", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user-cache"))
    for variable in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(corpus, "_unreachable", {})
    return folder


class Handler(BaseHTTPRequestHandler):
    """Answers every path as server.answers says: a function of the handler, or the bytes of the body."""

    def do_GET(self):
        """Answers a request."""
        answer = self.server.answers[self.path]
        if callable(answer):
            answer(self)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        """Keeps the test's output clean."""


@pytest.fixture
def server():
    """A local web server; answers maps a path to what it sends, and address(path) is where that is."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.answers = {}
    server.address = lambda path: f"http://127.0.0.1:{server.server_port}{path}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def serve(server, monkeypatch):
    """Makes a known corpus come from the local server; returns it."""

    def serve(known, answer, **changes):
        server.answers[f"/{known.file_name}"] = answer
        local = dataclasses.replace(known, url=server.address(f"/{known.file_name}"), **changes)
        monkeypatch.setitem(corpus.CATALOGUE, known.name, local)
        if known is corpus.TINY_SHAKESPEARE:
            monkeypatch.setattr(corpus, "TINY_SHAKESPEARE", local)
        return local

    return serve

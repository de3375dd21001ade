"""Downloads from a local server: the file arrives whole, or an error says why and nothing is left."""

import dataclasses
import hashlib
import multiprocessing
import socket
import threading
import time

import pytest

from gptcli.data import download as download_module
from gptcli.data.catalogue import CATALOGUE, TINY_SHAKESPEARE
from gptcli.data.download import DownloadFailed, download

BODY = b"First Citizen:\nBefore we proceed any further, hear me speak.\n" * 3000
DIGEST = hashlib.sha256(BODY).hexdigest()


def alice_at(url):
    return dataclasses.replace(CATALOGUE["alice"], url=url)


def leftovers(cache):
    return sorted(path.name for path in cache.iterdir())


def fails(corpus, cache, reason):
    with pytest.raises(DownloadFailed, match=reason) as caught:
        download(corpus)
    message = str(caught.value)
    assert "\n" not in message
    assert corpus.url in message and str(cache / corpus.file_name) in message
    assert leftovers(cache) == []


def test_the_file_arrives_whole(serve, cache, capsys):
    corpus = serve(TINY_SHAKESPEARE, BODY, sha256=DIGEST)
    path = download(corpus)
    assert path == cache / "tinyshakespeare.txt"
    assert path.read_bytes() == BODY
    assert leftovers(cache) == ["tinyshakespeare.txt"]
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"downloading Tiny Shakespeare (0.2 MB) from {corpus.url.split('/')[2]}\n"


def test_a_file_without_a_known_length(serve, cache):
    def answer(handler):
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(BODY)

    assert download(serve(TINY_SHAKESPEARE, answer, sha256=DIGEST)).read_bytes() == BODY


def test_another_file_than_the_one_that_is_wanted(serve, cache):
    fails(serve(TINY_SHAKESPEARE, BODY), cache, f"another file .sha256 {DIGEST[:12]}")


def test_a_transfer_that_breaks_off(serve, cache):
    def answer(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(BODY)))
        handler.end_headers()
        handler.wfile.write(BODY[:1000])

    fails(serve(CATALOGUE["alice"], answer), cache, f"broke off after 1,000 of {len(BODY):,} bytes")


def test_an_empty_file(serve, cache):
    fails(serve(CATALOGUE["alice"], b""), cache, "empty file")


@pytest.mark.parametrize("status", [403, 404, 500])
def test_an_error_of_the_server(serve, cache, status):
    fails(
        serve(CATALOGUE["alice"], lambda handler: handler.send_error(status)),
        cache,
        f"the server answers {status}",
    )


def test_a_file_that_says_it_is_too_large(serve, cache):
    def answer(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", str(10**12))
        handler.end_headers()

    fails(serve(CATALOGUE["alice"], answer), cache, "too large .1,000,000,000,000 bytes")


def test_a_file_that_turns_out_to_be_too_large(serve, cache, monkeypatch):
    def answer(handler):
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(BODY)

    monkeypatch.setattr(download_module, "_LIMIT_BYTES", 1000)
    fails(serve(CATALOGUE["alice"], answer), cache, "too large .over 1,000 bytes")


def test_redirects_lead_to_the_file(serve, server, cache):
    server.answers["/moved"] = BODY

    def answer(handler):
        handler.send_response(302)
        handler.send_header("Location", "/moved")
        handler.end_headers()

    assert download(serve(CATALOGUE["alice"], answer)).read_bytes() == BODY


@pytest.mark.parametrize("target", ["file:///etc/hostname", "ftp://127.0.0.1/x", "data:,x"])
def test_redirects_lead_nowhere_but_to_the_web(serve, cache, target):
    def answer(handler):
        handler.send_response(302)
        handler.send_header("Location", target)
        handler.end_headers()

    fails(serve(CATALOGUE["alice"], answer), cache, f"edirect.*{target.split(':')[0]}")


def test_an_address_that_is_no_web_address(cache, tmp_path):
    (tmp_path / "local.txt").write_bytes(BODY)
    fails(alice_at(f"file://{tmp_path}/local.txt"), cache, "not an http or https address")


def test_nobody_listens(cache):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    fails(alice_at(f"http://127.0.0.1:{port}/x"), cache, "Connection refused")


def test_a_name_that_does_not_exist(cache, monkeypatch):
    def no_address(*_, **__):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", no_address)
    fails(alice_at("http://nowhere.invalid/x"), cache, "name cannot be looked up")


def test_a_name_server_that_never_answers(cache, monkeypatch):
    never = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: never.wait())
    monkeypatch.setattr(download_module, "SILENCE_SECONDS", 0.1)
    fails(alice_at("http://nowhere.invalid/x"), cache, "no answer within 0.1 seconds")
    never.set()


def test_a_server_that_never_answers(cache, monkeypatch):
    monkeypatch.setattr(download_module, "SILENCE_SECONDS", 0.1)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        fails(
            alice_at(f"http://127.0.0.1:{silent.getsockname()[1]}/x"), cache, "no answer within 0.1 seconds"
        )


def test_a_server_that_stops_in_the_middle(serve, cache, monkeypatch):
    done = threading.Event()

    def answer(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(BODY)))
        handler.end_headers()
        handler.wfile.write(BODY[:10])
        done.wait(10)

    monkeypatch.setattr(download_module, "SILENCE_SECONDS", 0.2)
    fails(serve(CATALOGUE["alice"], answer), cache, "no answer within 0.2 seconds")
    done.set()


def test_a_server_that_drips_runs_out_of_time(serve, cache):
    def answer(handler):
        handler.send_response(200)
        handler.end_headers()
        for _ in range(100):
            handler.wfile.write(b"x")
            handler.wfile.flush()
            time.sleep(0.02)

    corpus = serve(CATALOGUE["alice"], answer)
    with pytest.raises(DownloadFailed, match="too slow"):
        download(corpus, total_seconds=0.1)
    assert leftovers(cache) == []


def test_an_answer_that_is_not_http(serve, cache):
    fails(
        serve(CATALOGUE["alice"], lambda handler: handler.wfile.write(b"garbage\r\n\r\n")), cache, "garbage"
    )


def test_processes_that_download_at_once_share_one_whole_file(serve, cache):
    corpus = serve(TINY_SHAKESPEARE, BODY, sha256=DIGEST)
    processes = [
        multiprocessing.get_context("fork").Process(target=download, args=(corpus,)) for _ in range(4)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    assert (cache / "tinyshakespeare.txt").read_bytes() == BODY
    assert leftovers(cache) == ["tinyshakespeare.txt"]


def test_a_terminal_gets_a_bar(serve, cache, monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    download(serve(TINY_SHAKESPEARE, BODY, sha256=DIGEST))
    assert "downloading" not in capsys.readouterr().err

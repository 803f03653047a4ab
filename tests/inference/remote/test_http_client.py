"""The way to a server: certificates and proxies, each in a process of its own, and answers that nobody asked for."""

import asyncio
import os
import ssl
import subprocess
import sys
from asyncio import timeout
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from inspect import signature
from itertools import repeat
from pathlib import Path

import pytest
import trustme

from inference.client.client import Client
from inference.errors import MidtokenError, OverloadedError, ServerError
from inference.healing.loaded_tokenizer import load_tokenizer
from inference.remote.http_client import SILENT_S, HttpClient
from tests.support.fake_llama_server import FakeLlamaServer, run_fake_llama_server

_ASK = """
import asyncio, sys
from inference.errors import MidtokenError
from inference.remote.http_client import SILENT_S, HttpClient

async def ask():
    client = HttpClient(*sys.argv[1:])
    try:
        print((await client.ask("props"))["model_path"])
    except MidtokenError as error:
        print(error)
    await client.close()

asyncio.run(ask())
"""


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module", params=[True, False], ids=["https", "http"])
def server(request: pytest.FixtureRequest, authority: trustme.CA) -> Iterator[FakeLlamaServer]:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH) if request.param else None
    if tls is not None:
        authority.issue_cert("127.0.0.1").configure_cert(tls)
    tokenizer = load_tokenizer(Path("models/default"))
    with run_fake_llama_server(tokenizer.encoder, tokenizer.vocabulary.num_rows, tls) as server:
        yield server


def _ask(url: str, key: str = "", **environment: str) -> str:
    command = [sys.executable, "-c", _ASK, url, key]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | environment, check=True).stdout


def test_a_certificate_is_trusted_if_the_environment_names_its_authority(
    server: FakeLlamaServer, authority: trustme.CA, tmp_path: Path
) -> None:
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    assert _ask(server.url, SSL_CERT_FILE=str(tmp_path / "ca.pem")) == "a.gguf\n"
    if server.url.startswith("https"):
        assert "does not answer: its certificate is not trusted; SSL_CERT_FILE" in _ask(server.url)
        assert "does not answer: it has closed" in _ask(server.url.replace("https", "http"))
    else:
        assert "does not answer: it speaks no TLS" in _ask(server.url.replace("http", "https"))


def test_no_proxy_of_the_environment_is_used(server: FakeLlamaServer, authority: trustme.CA, tmp_path: Path) -> None:
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    none = dict.fromkeys(("http_proxy", "https_proxy", "ALL_PROXY"), "http://127.0.0.1:9")
    assert _ask(server.url, no_proxy="", SSL_CERT_FILE=str(tmp_path / "ca.pem"), **none) == "a.gguf\n"


@pytest.mark.parametrize("server", [True], indirect=True, ids=["https"])
def test_the_only_key_is_the_one_that_is_given(server: FakeLlamaServer, authority: trustme.CA, tmp_path: Path) -> None:
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login ann password pw\n")
    for key in ("", "k"):
        told = _ask(server.url, key, SSL_CERT_FILE=str(tmp_path / "ca.pem"), NETRC=str(tmp_path / "netrc"))
        assert (told, server.keys.pop()) == ("a.gguf\n", key and "Bearer k")


def test_a_name_that_is_not_known_and_a_port_without_a_server_are_told_apart() -> None:
    assert "nothing listens there" in _ask("http://127.0.0.1:9")
    assert "its name is not known" in _ask("http://no-such-name.invalid")


async def _write(parts: Callable[[], Iterable[bytes]], asked: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
    try:
        await asked.read(2**16)  # or closing would tear the connection
        for part in parts():
            to.write(part)
            await to.drain()
            if len(part) == 1:
                await asyncio.sleep(0.01)
        to.write_eof()
    except (OSError, asyncio.CancelledError):  # the client has gone
        return
    finally:
        to.close()


async def _ask_raw(parts: Callable[[], Iterable[bytes]], *, streams: bool) -> object:
    """What a client gets from a server that answers with these parts, a single byte in 10 ms, whatever it is asked."""
    server = await asyncio.start_server(partial(_write, parts), "127.0.0.1", 0)
    client = HttpClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", answer_s=0.5, silent_s=0.5)
    try:
        async with timeout(20):
            if streams:
                return [each async for each in client.stream("completion", {}, 1)]
            return await client.ask("props")
    finally:
        await client.close()
        server.close()


_OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
_CHUNKED = _OK + b"Transfer-Encoding: chunked\r\n\r\n"
_TOO_MUCH, _SILENT, _NO_JSON = "sends more than was asked for", "was silent for too long", "sends no JSON"


@pytest.mark.parametrize("streams", [False, True], ids=["answer", "event"])
@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (lambda: [_OK, b"\r\n", *repeat(b"data:" + b" " * 2**16, 2**10)], _TOO_MUCH),
        (lambda: [_CHUNKED, *repeat(b"8\r\n        \r\n" * 2**10, 2**9)], f"{_TOO_MUCH}|{_SILENT}"),
        (lambda: [_OK, b"\r\n", *repeat(b"data: {}\n" * 2**10, 2**10)], _TOO_MUCH),
        (lambda: [_OK, b"\r\n", b'data: {"a": ', *repeat(b"1", 10**6)], _SILENT),
        (lambda: [_OK, b"\r\n", *repeat(b"\n", 10**6)], _SILENT),
        (lambda: [_OK, *repeat(b"a", 10**6)], _SILENT),
        (lambda: repeat(b"HTTP/1.1 100 Continue\r\n\r\n", 10**9), _SILENT),
        (lambda: [_OK, b"Content-Encoding: gzip\r\n\r\n", b"\x1f\x8b"], "answers in another format: .gzip"),
        (lambda: [_OK, b'\r\ndata: {"n_ctx": NaN}\n'], _NO_JSON),
        (lambda: [_OK, b"\r\ndata: " + b"[" * 10**5 + b"\n"], _NO_JSON),
        (lambda: [_OK, b"\r\ndata: " + b'{"a":' * 10**5 + b"\n"], _NO_JSON),
        (lambda: [_OK, b"\r\ndata: {}{}\n"], _NO_JSON),
        (lambda: [_OK, *(b"X-%d: a\r\n" % number for number in range(10**4)), b"\r\ndata: {}\n"], "does not answer"),
        (lambda: [b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9\r\n\r\n"], "status 302"),
        (lambda: [b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n{}"], "answers in another format: .text/html"),
        (lambda: [b"SSH-2.0-x\r\n"], "does not answer: it speaks no HTTP"),
        (lambda: [], "it has closed the connection"),
    ],
    ids=[
        *(
            "too long",
            "too long in small parts",
            "too many",
            "slow body",
            "only blank lines",
            "slow head",
            "only continue",
            "compressed",
        ),
        *("NaN", "deep", "deep objects", "more than one", "ten thousand headers", "redirect", "page", "not HTTP"),
        "nothing",
    ],
)
async def test_an_answer_that_nobody_asked_for_is_one_sentence(
    parts: Callable[[], Iterable[bytes]], words: str, streams: bool
) -> None:
    with pytest.raises(ServerError, match=words):
        await _ask_raw(parts, streams=streams)


async def test_an_event_may_come_in_any_parts() -> None:
    body = b': ping\r\ndata:{"a": "\xc3\xa9"}\r\n\r\ndata: {"b": 1}\n\ndata: [DONE]'
    parts = [_CHUNKED, *(b"1\r\n%c\r\n" % each for each in body), b"0\r\n\r\n"]
    assert await _ask_raw(lambda: parts, streams=True) == [{"a": "é"}, {"b": 1}]
    assert await _ask_raw(lambda: [b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{}"], streams=False) == {}


async def test_a_busy_server_is_not_asked_for_as_long_as_it_says() -> None:
    asked = []

    async def refuse(_asked: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        asked.append(1)
        to.write(b"HTTP/1.1 429 No\r\nRetry-After: 7\r\nContent-Length: 4\r\n\r\nslow")
        to.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    client = HttpClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    told: list[MidtokenError] = []
    for _ in range(2):
        with pytest.raises(OverloadedError, match=r"is busy \(status 429\): 'slow'") as raised:
            await client.ask("props")
        told.append(raised.value)
    await client.close()
    server.close()
    assert (len(asked), "it asks for 7 s" in str(told[1])) == (1, True)


def test_a_server_that_falls_silent_is_blamed_before_the_client_gives_up() -> None:
    assert signature(Client).parameters["idle_timeout_s"].default > SILENT_S

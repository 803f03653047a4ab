"""Certificates and proxies on the way to a server, each in a process of its own, which has read its environment."""

import asyncio
import os
import socketserver
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from inference.errors import ServerError
from inference.healing.loaded_tokenizer import load_tokenizer
from inference.remote.http_client import ask_all
from tests.support.fake_llama_server import FakeLlamaServer, run_fake_llama_server

_ASK = """
import asyncio, sys
from inference.errors import MidtokenError
from inference.remote.http_client import HttpClient

async def ask():
    client = HttpClient(*sys.argv[1:])
    try:
        print((await client.ask("props"))["model_path"])
    except MidtokenError as error:
        print(error)
    await client.close()

asyncio.run(ask())
"""


class _Proxy(socketserver.StreamRequestHandler):
    """Notes what it is asked, and refuses it."""

    def handle(self) -> None:
        asked = b"".join(iter(self.rfile.readline, b"\r\n"))
        self.server.asked.append(asked.decode())  # type: ignore[attr-defined]
        self.wfile.write(b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n")


@pytest.fixture(scope="module")
def proxy() -> Iterator[socketserver.ThreadingTCPServer]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Proxy) as server:
        server.asked = []  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


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


def test_the_proxy_of_the_environment_gets_only_what_is_encrypted(
    server: FakeLlamaServer, proxy: socketserver.ThreadingTCPServer
) -> None:
    address = f"http://ann:pw@127.0.0.1:{proxy.server_address[1]}"
    told = _ask(server.url, http_proxy=address, https_proxy=address, no_proxy="")
    if server.url.startswith("https"):
        assert "the proxy that the environment names refuses" in told
        asked = proxy.asked.pop()  # type: ignore[attr-defined]
        assert asked.startswith("CONNECT ")
        assert "Proxy-Authorization: Basic YW5uOnB3" in asked
    else:
        assert (told, proxy.asked) == ("a.gguf\n", [])  # type: ignore[attr-defined]


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


async def test_what_runs_beside_work_that_fails_is_ended() -> None:
    waiting = [asyncio.ensure_future(asyncio.Event().wait()) for _ in range(2)]
    failed = asyncio.get_running_loop().create_future()
    failed.set_exception(ServerError("no"))
    with pytest.raises(ServerError, match="no"):
        await asyncio.wait_for(ask_all([waiting[0], failed, waiting[1]]), 10)
    assert all(each.cancelled() for each in waiting)

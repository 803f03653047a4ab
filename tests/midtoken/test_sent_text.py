"""What the commands send of excluded files and of secrets, to a server that records what it receives."""

import asyncio
import dataclasses
import io
import os
import re
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import pytest

from inference.protocol.characters import CharacterRequest
from inference.protocol.completion import CompletionRequest
from lsp_server.guard import Cleared, Guard
from midtoken.cli import main
from midtoken.connection import Connection, ServerAddress
from tests.support.fake_triton import run_fake_triton, say
from tests.support.secret_forms import SECRETS, count_secret_bytes

_OPEN = "before = 1\n"
_SECRETS = SECRETS[::15]  # all are replaced alike, whatever reads them; tests of lsp_server/guard.py have every one
# Each way in which a command reads a file.
_READERS: Mapping[str, tuple[str, ...]] = {
    "complete": ("complete", "{file}:1"),
    "explain": ("explain", "{file}:1"),
    "explain, as an editor has it": ("explain", "{file}:1", "--stdin"),
    "characters": ("characters", "{file}"),
}


@pytest.fixture(params=_READERS)
def reader(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return _READERS[request.param]


def _count_secret_bytes(sent: list[str], line_end: str = "\n") -> int:
    return count_secret_bytes(sent, [each.secret.replace("\n", line_end) for each in _SECRETS])


_Send = Callable[..., Awaitable[list[str]]]


@pytest.fixture
def send(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Send:
    """Runs a command. It reads a file, or the same text on standard input.

    Returns the texts that the server has received.
    """
    monkeypatch.chdir(tmp_path)

    async def send(reader: tuple[str, ...], path: Path, text: str, *options: str) -> list[str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(os.fsencode(text))))
        arguments = [*(argument.format(file=path) for argument in reader), *options]
        async with run_fake_triton(say("a test: it answers nothing")) as server:
            assert await asyncio.to_thread(main, [*arguments, "--server", server.url]) == 1
        values = [value for call in server.calls for array in call.arrays.values() for value in array.reshape(-1)]
        return [os.fsdecode(value) for value in values if isinstance(value, bytes) and value]

    return send


async def test_an_excluded_file_is_refused_with_its_rule_unless_an_option_says_so(
    reader: tuple[str, ...], send: _Send, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.py"
    path.write_text("marker_7fd1 = 1\n")
    (tmp_path / ".midtokenignore").write_text("mine.py\n")
    assert await send(reader, path, path.read_text()) == []
    reason = "nothing of this file is sent: `.midtokenignore` line 1: `mine.py`; --send-excluded sends it anyway"
    assert capsys.readouterr().err == f"midtoken: {path}: {reason}\n"
    assert "marker_7fd1" in "".join(await send(reader, path, path.read_text(), "--send-excluded"))


async def test_secrets_are_replaced_unless_an_option_says_so(
    reader: tuple[str, ...], send: _Send, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "app.py"
    path.write_text(_OPEN + "".join(each.text for each in _SECRETS) + "after = 1\n")
    reader = tuple(argument.replace(":1", f":{path.read_text().count(chr(10))}") for argument in reader)
    sent = await send(reader, path, path.read_text())
    told = capsys.readouterr().err
    assert "before = 1" in "".join(sent)
    assert _count_secret_bytes(sent) == 0
    assert told.startswith("midtoken: REDACTED is sent instead of each secret; --send-secrets sends them\n")
    sent = await send(reader, path, path.read_text(), "--send-secrets")
    assert _count_secret_bytes(sent) > 0
    assert "REDACTED" not in capsys.readouterr().err


async def test_text_of_no_file_has_its_secrets_replaced_whatever_ends_its_lines(send: _Send) -> None:
    text = (_OPEN + "".join(each.text for each in _SECRETS)).replace("\n", "\r\n") + "after = 1"
    sent = await send(("characters", "-"), Path(), text)
    assert _count_secret_bytes(sent, "\r\n") == 0
    assert "before = 1" in "".join(sent)


@pytest.mark.parametrize("reader", [("complete", "{file}:1"), ("characters", "{file}")], ids=str)
async def test_with_the_cursor_in_a_secret_nothing_is_sent(
    reader: tuple[str, ...], send: _Send, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "app.py"
    path.write_text(f'key = "{SECRETS[0].secret}')
    assert await send(reader, path, path.read_text()) == []
    reason = "the cursor is in a secret, which is not sent; --send-secrets sends it anyway"
    assert capsys.readouterr().err == f"midtoken: {reason}\n"


async def test_a_connection_sends_only_what_the_guard_has_cleared_and_nothing_is_added_to_it() -> None:
    connection = Connection(ServerAddress("127.0.0.1:9"))
    with pytest.raises(AttributeError):
        connection.stream(CompletionRequest("a"))  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        await connection.ask(CharacterRequest(b"a"))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Cleared(CompletionRequest("a"))  # type: ignore[call-arg]
    await connection.close()
    cleared = Guard().clear(CompletionRequest("a"), ())
    with pytest.raises(AttributeError):
        cleared.value = CompletionRequest("b")  # type: ignore[misc]
    with pytest.raises(TypeError):
        dataclasses.replace(cleared, value=CompletionRequest("b"))  # type: ignore[type-var]
    assert [each for each in dir(cleared) if not each.startswith("_")] == ["value"]
    sources = [path for folder in ("inference", "lsp_server", "midtoken") for path in Path(folder).rglob("*.py")]
    users = [path.as_posix() for path in sources if re.search(r"_GuardOnly\b|\bCleared\(|\._value\b", path.read_text())]
    assert users == ["lsp_server/guard.py"]

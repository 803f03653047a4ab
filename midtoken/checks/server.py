"""The completion server, and a real completion."""

import argparse
import time
from collections.abc import AsyncIterator

from inference.errors import LaunchError, MidtokenError, ServerUnreachableError
from inference.protocol.completion import CompletionRequest, Extent
from midtoken.arguments.server import ServerArguments
from midtoken.checks.check import Check, Mark, good, note, wrong
from midtoken.checks.model import check_model_folder
from midtoken.connection import Connection
from midtoken.errors import MissingPackagesError, ServerAddressError

# The example of the README. Its cursor is in the middle of a token.
_PREFIX = "class Node:\n    pass\n\n\ndef make():\n    return Nod"
_REST = "e"
_WITH_ADVICE = (LaunchError, MissingPackagesError, ServerAddressError)


async def check_server(options: argparse.Namespace) -> AsyncIterator[Check]:
    """Checks the model, finds or starts the server, and asks for a completion."""
    if options.server is None:
        for check in _check_model(options):
            yield check
            if check.mark is Mark.WRONG:
                return
    started_at = time.perf_counter()
    try:
        connection = await Connection.open(options, on_progress=lambda _line: None)
    except MidtokenError as error:
        yield _describe_failure("completion server", error)
        return
    took_s = time.perf_counter() - started_at
    try:
        yield good(await _describe_server(connection, took_s))
        yield await _check_completion(connection, is_default=options.model is None and options.server is None)
    except MidtokenError as error:
        yield _describe_failure("a completion", error)
    finally:
        await connection.close()


def _check_model(options: argparse.Namespace) -> list[Check]:
    try:
        arguments = ServerArguments.from_options(options)
        was_running = arguments.entry.is_served()
    except MidtokenError as error:
        return [_describe_failure("completion server", error)]
    state = "is running already" if was_running else "is not running, so it is started now"
    return [check_model_folder(arguments.model.model_dir), good(f"your shared server {state}")]


async def _describe_server(connection: Connection, took_s: float) -> str:
    version = await connection.read_server_version()
    stalled_ms = await connection.read_heartbeat_ms()
    state = "idle" if stalled_ms == 0 else f"busy, its last step was {stalled_ms:.0f} ms ago"
    return f"completion server at {connection.address.url}: {version}, {state}, connected in {took_s:.1f} s"


async def _check_completion(connection: Connection, is_default: bool) -> Check:
    started_at = time.perf_counter()
    request = CompletionRequest(_PREFIX, max_tokens=8, extent=Extent.SINGLE_LINE)
    text = "".join([chunk.text async for chunk in connection.stream(request)])
    took_ms = 1e3 * (time.perf_counter() - started_at)
    what = f"a completion in the middle of a token: `return Nod` goes on with `{text}` after {took_ms:.0f} ms"
    if is_default and text != _REST:
        advice = f"The default model should say `{_REST}`; install midtoken again, and report it if that does not help."
        return note(what, advice)
    return good(what)


def _describe_failure(what: str, error: MidtokenError) -> Check:
    """The messages of these errors are for users, and most of them say what to do."""
    problem, _, log = str(error).strip().partition("\n")
    if log.strip():
        return wrong(f"{what}: {problem}", f"The last line of its log: {log.strip().rpartition(chr(10))[2]}")
    if isinstance(error, ServerUnreachableError):
        return wrong(f"{what}: {problem}", "Start it there with midtoken serve, or leave --server out.")
    return wrong(f"{what}: {problem}", "" if isinstance(error, _WITH_ADVICE) else "Its log may say more.")

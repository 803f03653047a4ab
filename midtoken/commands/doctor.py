"""Check whether completions work here, and say what to do if they do not.

Checks the model, the server with a real completion, and a file if one is named.
"""

import argparse
import asyncio
import os
import platform
import sys
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path

from lsprotocol.types import PositionEncodingKind, TextDocumentItem
from rich.console import Console
from rich.text import Text

from inference.errors import MidtokenError, ServerUnreachableError
from inference.protocol.completion import CompletionRequest, Extent
from lsp_server.documents import Document
from lsp_server.no_suggestion import find_document_reason
from lsp_server.privacy.exclusion import Policy
from lsp_server.privacy.guard import Guard
from lsp_server.server import find_version
from lsp_server.settings import Settings
from midtoken.connection import Connection
from midtoken.models import fetch_model
from midtoken.server import ServerArguments
from midtoken.server_arguments import add_connection_arguments, find_languages

# The example of the README. Its cursor is in the middle of a token.
_PREFIX = "class Node:\n    pass\n\n\ndef make():\n    return Nod"
_REST = "e"
_LANGUAGES = {".py": "python", ".pyi": "python"}  # the identifiers that editors give files with these endings


class Mark(Enum):
    """How it stands."""

    GOOD = "✓"
    NOTE = "!"  # completions work all the same
    WRONG = "✗"  # completions do not work


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report."""

    mark: Mark
    what: str
    advice: str = ""  # one sentence on what to do


good = partial(Check, Mark.GOOD)  # nothing is wrong
note = partial(Check, Mark.NOTE)  # something to know
wrong = partial(Check, Mark.WRONG)  # why there are no completions


async def check_server(options: argparse.Namespace) -> AsyncIterator[Check]:
    """Checks the model, finds or starts the server, and asks for a completion."""
    if options.server is None:
        for check in await _check_model(options):
            yield check
            if check.mark is Mark.WRONG:
                return
    started_at = time.perf_counter()
    try:
        connection = await Connection.open(options)
    except MidtokenError as error:
        yield _describe_failure("completion server", error)
        return
    took_s = time.perf_counter() - started_at
    try:
        runs_as = f", model as {connection.runs_as}" if connection.runs_as else ""
        yield good(f"completion server at {connection.url}: connected in {took_s:.1f} s{runs_as}")
        yield await _check_completion(connection, is_default=options.model is None and options.server is None)
    except MidtokenError as error:
        yield _describe_failure("a completion", error)
    finally:
        await connection.close()


async def _check_model(options: argparse.Namespace) -> list[Check]:
    try:
        await fetch_model(options.model, lambda text, percentage: print(f"{text} ({percentage} %)", file=sys.stderr))
        arguments = ServerArguments.from_options(options)
        was_running, obstacle = arguments.entry.is_served(), arguments.obstacle_to_triton
    except MidtokenError as error:
        return [_describe_failure("completion server", error)]
    state = "is running already" if was_running else "is not running, so it is started now"
    files = {path.resolve() for path in arguments.model.model_dir.iterdir()}  # two links may lead to one
    num_bytes = sum(file.stat().st_size for file in files if file.is_file())
    return [
        good(f"model {arguments.model.model_dir}, {num_bytes / 1e6:,.0f} MB"),
        good("runtime: Triton" if obstacle is None else f"runtime: one process without Triton ({obstacle})"),
        good(f"your shared server {state}"),
    ]


async def _check_completion(connection: Connection, is_default: bool) -> Check:
    request = Guard().clear(CompletionRequest(_PREFIX, max_tokens=8, extent=Extent.SINGLE_LINE))
    started_at = time.perf_counter()
    chunks = [chunk async for chunk in connection.stream(request)]
    text = "".join(chunk.text for chunk in chunks)
    took_ms = 1e3 * (time.perf_counter() - started_at)
    what = f"a completion in the middle of a token: `return Nod` is completed with `{text}` after {took_ms:.0f} ms"
    if is_default and text != _REST:
        advice = f"The default model should say `{_REST}`. Reinstall midtoken, and report it if that does not help."
        return note(what, advice)
    if not all(chunk.text_ends for chunk in chunks if chunk.text):
        return note(
            what,
            "Its engine reports no probabilities, so all text is shown and the setting `confidence` has no effect.",
        )
    return good(what)


def _describe_failure(what: str, error: MidtokenError) -> Check:
    """The messages of these errors are for users, and most of them say what to do."""
    problem, _, log = str(error).strip().partition("\n")
    if log.strip():
        return wrong(f"{what}: {problem}", f"The last line of its log: {log.strip().rpartition(chr(10))[2]}")
    if isinstance(error, ServerUnreachableError):
        return wrong(f"{what}: {problem}", "Start it there with midtoken serve, or omit --server.")
    return wrong(f"{what}: {problem}")


def check_document(path: Path, environment: Mapping[str, str], model_languages: tuple[str, ...] | None) -> Check:
    """Checks a file with the default settings. Those of an editor are not known here.

    `model_languages`: the languages that the model knows; None: any.
    """
    path = path.absolute()
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        return wrong(f"{path} cannot be read: {error.strerror}", "Correct its path or its permissions.")
    except UnicodeDecodeError:
        return wrong(f"{path} is not UTF-8, so it cannot be completed", "Convert it if it is text.")
    language = _LANGUAGES.get(path.suffix, path.suffix.removeprefix("."))
    document = Document(TextDocumentItem(path.as_uri(), language, 0, text), PositionEncodingKind.Utf8)
    exclusion = Policy(environment).find_exclusion(document.uri)
    found = find_document_reason(document, Settings(), model_languages, exclusion)
    if found is not None:
        return wrong(f"{path} gets no suggestions ({found.reason}): {found.message}", "")
    return good(f"{path} gets suggestions, unless the settings of your editor exclude it")


_STYLES = {Mark.GOOD: "green", Mark.NOTE: "yellow", Mark.WRONG: "bold red"}
_WAITING = "checking the completion server (its first start takes some seconds) …"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that `run` reads."""
    parser.add_argument(
        "file", nargs="?", type=Path, metavar="FILE", help="also say whether this file gets suggestions"
    )
    add_connection_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Prints a line for each check. Returns 1 if something stops completions, in the file if one is named."""
    return asyncio.run(_report(options))


async def _report(options: argparse.Namespace) -> int:
    console, marks = Console(highlight=False), set()
    async for check in _check_all(options):
        marks.add(check.mark)
        line = Text.assemble((check.mark.value, _STYLES[check.mark]), " ", check.what)
        if check.advice:
            line.append(f". {check.advice}", style="dim" if check.mark is Mark.GOOD else "")
        console.print(line, soft_wrap=True)
    return 1 if Mark.WRONG in marks else 0


async def _check_all(options: argparse.Namespace) -> AsyncIterator[Check]:
    yield good(f"midtoken {find_version('midtoken')}, Python {platform.python_version()}, {sys.executable}")
    with Console(stderr=True).status(_WAITING):
        async for check in check_server(options):
            yield check
    if options.file is not None:
        yield check_document(options.file, os.environ, find_languages(options))

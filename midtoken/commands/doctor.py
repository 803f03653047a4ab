"""Check whether completions work here, and say what to do if they do not.

Checks the model, the server with a real completion, and a file if one is named.
"""

import argparse
import asyncio
import os
import platform
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from importlib.metadata import version
from pathlib import Path

from lsprotocol.types import PositionEncodingKind, TextDocumentItem
from rich.console import Console
from rich.text import Text

from inference.errors import LaunchError, MidtokenError, ServerUnreachableError
from inference.protocol.completion import CompletionRequest, Extent
from lsp_server.documents import Document
from lsp_server.no_suggestion import find_document_reason
from lsp_server.privacy.exclusion import Policy
from lsp_server.privacy.guard import Guard
from lsp_server.settings import Settings
from midtoken.api import read_completion
from midtoken.connection import Connection, open_connection
from midtoken.input_text import find_language, read_text
from midtoken.server import ServerArguments
from midtoken.server_arguments import UsageError, add_connection_arguments, find_languages
from midtoken.workspace import find_index_dir, read_project

# The example of the README. Its cursor is in the middle of a token.
_PREFIX = "class Node:\n    pass\n\n\ndef make():\n    return Nod"
_REST = "e"


class Mark(Enum):
    """How it stands."""

    GOOD = "✓"
    NOTE = "!"  # completions work all the same
    WRONG = "✗"  # completions do not work


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report: what was found and, if something is wrong, what to do."""

    mark: Mark
    what: str


good = partial(Check, Mark.GOOD)  # nothing is wrong
note = partial(Check, Mark.NOTE)  # something to know
wrong = partial(Check, Mark.WRONG)  # why there are no completions


async def check_server(options: argparse.Namespace) -> AsyncIterator[Check]:
    """Finds or starts the server, describes it and its model, and asks for a completion."""
    is_shared = options.server is None
    try:
        async with open_connection(options) as connection:
            for check in describe_model(options) if is_shared else ():
                yield check
            served = connection.description
            runs_as = f", model as {served.runs_as}" if served.runs_as else ""
            yield good(f"completion server at {connection.url}{runs_as}")
            if served.context_tokens is not None:
                yield _describe_window(served.context_tokens, connection.max_related_bytes)
            yield await _check_completion(connection, is_default=is_shared and options.model is None)
    except MidtokenError as error:
        yield _describe_failure(error)


def describe_model(options: argparse.Namespace) -> Iterator[Check]:
    """Yields which model is served."""
    arguments = ServerArguments.from_options(options)
    files = {path.resolve() for path in arguments.config.model_dir.iterdir()}  # two links may lead to one
    num_bytes = sum(file.stat().st_size for file in files if file.is_file())
    yield good(f"model {arguments.config.model_dir}, {num_bytes / 1e6:,.0f} MB")


def _describe_window(context_tokens: int, max_related_bytes: int) -> Check:
    room = f"with room for {max_related_bytes} bytes" if max_related_bytes else "too few to tell anything"
    return good(f"a prompt has at most {context_tokens} tokens (--context), {room} of other files of a project")


async def _check_completion(connection: Connection, is_default: bool) -> Check:
    request = Guard().clear(CompletionRequest(_PREFIX, max_tokens=8, extent=Extent.SINGLE_LINE), ())
    answer = await read_completion(connection.stream(request))
    what = (
        f"a completion in the middle of a token: `return Nod` is completed with `{answer.text}` after "
        f"{answer.stats.total_ms:.0f} ms"
    )
    if is_default and answer.text != _REST:
        return note(f"{what}. The default model should say `{_REST}`: reinstall midtoken, or report it")
    if not any(answer.likely.read_tokens()):
        return note(f"{what}. Its engine reports no probabilities, so all text is shown, whatever `confidence` is")
    return good(what)


def _describe_failure(error: MidtokenError) -> Check:
    """The messages of these errors are for users, and most of them say what to do."""
    more = ". Start it there with midtoken serve, or omit --server" if isinstance(error, ServerUnreachableError) else ""
    return wrong(f"{error}{more}")


def check_document(path: Path, environment: Mapping[str, str], model_languages: tuple[str, ...] | None) -> Check:
    """Checks a file with the default settings. Those of an editor are not known here.

    `model_languages`: the languages that the model knows; None: any.
    """
    path = path.absolute()
    try:
        text = read_text(str(path))
    except UsageError as error:
        return wrong(str(error))
    item = TextDocumentItem(path.as_uri(), find_language(path, model_languages), 0, text)
    document = Document(item, PositionEncodingKind.Utf8)
    exclusion = Policy(environment).find_exclusion(document.uri)
    found = find_document_reason(document, Settings(), model_languages, exclusion)
    if found is not None:
        return wrong(f"{path} gets no suggestions ({found.reason}): {found.message}")
    return good(f"{path} gets suggestions, unless the settings of your editor exclude it")


def check_project(path: Path, index_dir: Path | None) -> Check:
    """Reads the project of a file, and says what is known of it."""
    try:
        read = read_project(path, index_dir)
    except LaunchError as error:
        return note(str(error))
    if read is None:
        return note(f"{path.absolute()} is in no repository of Git; what its project declares was not looked at")
    folder, index, report = read
    index.close()
    languages = ", ".join(f"{number} {language}" for language, number in sorted(report.languages.items())) or "no"
    left_out = {
        "excluded": report.num_excluded,
        "too large or no text": report.num_unread,
        "more than are read": report.num_left_out,
    }
    others = "".join(f"; {number} {why}" for why, number in left_out.items() if number)
    return good(f"the index has the declarations of {languages} files in {folder}{others}")


_STYLES = {Mark.GOOD: "green", Mark.NOTE: "yellow", Mark.WRONG: "bold red"}


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
        console.print(line, soft_wrap=not console.is_terminal)
    return 1 if Mark.WRONG in marks else 0


async def _check_all(options: argparse.Namespace) -> AsyncIterator[Check]:
    yield good(f"midtoken {version('midtoken')}, Python {platform.python_version()}, {sys.executable}")
    async for check in check_server(options):
        yield check
    if options.file is not None:
        yield check_document(options.file, os.environ, find_languages(options))
        yield check_project(options.file, find_index_dir(options))

"""Check whether completions work here, and say what to do if they do not.

Checks the model, the server with a real completion, and a file if one is named.
"""

import argparse
import asyncio
import os
import platform
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import version
from pathlib import Path

from lsprotocol.types import TextDocumentItem
from rich.console import Console
from rich.text import Text

from inference.errors import MidtokenError, ServerUnreachableError
from inference.protocol.completion import CompletionRequest, Extent
from lsp_server.documents import Document
from lsp_server.exclusion import Policy
from lsp_server.guard import Guard
from lsp_server.no_suggestion import find_obstacle
from lsp_server.settings import Settings
from midtoken.api import read_completion
from midtoken.connection import Connection, ServerArguments, open_connection
from midtoken.input_text import find_language, read_text
from midtoken.installed import BUNDLED_MODEL_LANGUAGES
from midtoken.models import find_default_name
from midtoken.server_arguments import UsageError, add_connection_arguments

# The example of the README. Its cursor is in the middle of a token.
_PREFIX = "class Node:\n    pass\n\n\ndef make():\n    return Nod"
_REST = "e"


class Mark(Enum):
    """How it stands: what is printed, and its style."""

    GOOD = "✓", "green"
    NOTE = "!", "yellow"  # something to know; completions work all the same
    WRONG = "✗", "bold red"  # why there are no completions


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report: what was found and, if something is wrong, what to do."""

    what: str
    mark: Mark = Mark.GOOD


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
    async for check in check_all(options):
        marks.add(check.mark)
        console.print(Text.assemble(check.mark.value, " ", check.what), soft_wrap=not console.is_terminal)
    return 1 if Mark.WRONG in marks else 0


async def check_all(options: argparse.Namespace) -> AsyncIterator[Check]:
    """Finds or starts the server, describes it and its model, and asks for a completion. Checks the named file."""
    yield Check(f"midtoken {version('midtoken')}, Python {platform.python_version()}, {sys.executable}")
    is_shared = options.server is None
    is_bundled = is_shared and (options.model or find_default_name()) is None
    languages: tuple[str, ...] | None = BUNDLED_MODEL_LANGUAGES if is_bundled else None
    try:
        async with open_connection(options) as connection:
            if is_shared:
                yield describe_model(options)
            served = connection.description
            languages = served.languages or None
            yield Check(
                f"completion server at {connection.url}{f', model as {served.runs_as}' if served.runs_as else ''}"
            )
            if served.context_tokens is not None:
                yield Check(f"a prompt has at most {served.context_tokens} tokens (--context)")
            yield await _check_completion(connection, is_bundled)
    except MidtokenError as error:  # for users; most of these messages say what to do
        advice = "Its log is beside it" if is_shared else "Start it there with midtoken serve, or omit --server"
        yield Check(f"{error}. {advice}" if isinstance(error, ServerUnreachableError) else str(error), Mark.WRONG)
    if options.file is not None:
        yield check_document(options.file, os.environ, languages)


def describe_model(options: argparse.Namespace) -> Check:
    """Says which model is served."""
    model_dir = ServerArguments.from_options(options).config.model_dir
    files = {path.resolve() for path in model_dir.iterdir()}  # two links may lead to one
    num_bytes = sum(file.stat().st_size for file in files if file.is_file())
    return Check(f"model {model_dir}, {num_bytes / 1e6:,.0f} MB")


async def _check_completion(connection: Connection, is_bundled: bool) -> Check:
    request = Guard().clear(CompletionRequest(_PREFIX, max_tokens=8, extent=Extent.SINGLE_LINE), ())
    answer = await read_completion(connection.stream(request))
    what = (
        f"a completion in the middle of a token: `return Nod` is completed with `{answer.text}` after "
        f"{answer.stats.total_ms:.0f} ms"
    )
    if is_bundled and answer.text != _REST:
        return Check(f"{what}. The bundled model should say `{_REST}`: reinstall midtoken, or report it", Mark.NOTE)
    if not any(answer.likely.read_tokens()):
        reason = "Its engine reports no probabilities, so all text is shown, whatever `confidence` is"
        return Check(f"{what}. {reason}", Mark.NOTE)
    return Check(what)


def check_document(path: Path, environment: Mapping[str, str], model_languages: tuple[str, ...] | None) -> Check:
    """Checks a file with the default settings. Those of an editor are not known here.

    `model_languages`: the languages that the model knows; None: any.
    """
    path = path.absolute()
    try:
        text = read_text(str(path))
    except UsageError as error:
        return Check(str(error), Mark.WRONG)
    item = TextDocumentItem(path.as_uri(), find_language(path, model_languages), 0, text)
    document = Document(item)
    exclusion = Policy(environment).find_exclusion(document.uri)
    found = find_obstacle(document, Settings(), model_languages, exclusion)
    if found is not None:
        return Check(f"{path} gets no suggestions ({found.reason}): {found.message}", Mark.WRONG)
    return Check(f"{path} gets suggestions, unless the settings of your editor exclude it")

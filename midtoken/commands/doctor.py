"""Check whether completions work here, and say what to do where they do not.

Checks the environment, the model, the server with a real completion, the editors on the path, and a file if one is
named.
"""

import argparse
import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

from rich.console import Console
from rich.text import Text

from midtoken.checks import Check, Mark, check_document, check_packages, check_python, check_server
from midtoken.editor_checks import check_editors
from midtoken.server_arguments import add_connection_arguments, find_languages

_STYLES = {Mark.GOOD: "green", Mark.NOTE: "yellow", Mark.WRONG: "bold red"}
_WAITING = "checking the completion server (its first start takes some seconds) …"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that `run` reads."""
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE", help="say whether it gets suggestions, too")
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
    yield check_python()
    for check in check_packages(needs_server=options.server is None):
        yield check
    with Console(stderr=True).status(_WAITING):
        async for check in check_server(options):
            yield check
    for check in check_editors(os.environ):
        yield check
    if options.file is not None:
        yield check_document(options.file, os.environ, find_languages(options))

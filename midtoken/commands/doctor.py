"""Check whether completions work here, and say what to do if they do not.

Checks the environment, the model, the server with a real completion, the editors on the path, and a file if one is
named.
"""

import argparse
import asyncio
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from importlib.metadata import version
from pathlib import Path

from lsprotocol.types import PositionEncodingKind, TextDocumentItem
from rich.console import Console
from rich.text import Text

from inference.errors import LaunchError, MidtokenError, ModelError, ServerUnreachableError
from inference.protocol.completion import CompletionRequest, Extent
from lsp_server.documents import Document
from lsp_server.no_suggestion import find_document_reason
from lsp_server.privacy.exclusion import Policy
from lsp_server.privacy.guard import Guard
from lsp_server.settings import Settings
from midtoken.connection import Connection
from midtoken.models import fetch_model
from midtoken.server import ServerArguments
from midtoken.server_arguments import UsageError, add_connection_arguments, find_languages

# The example of the README. Its cursor is in the middle of a token.
_PREFIX = "class Node:\n    pass\n\n\ndef make():\n    return Nod"
_REST = "e"
_WITH_ADVICE = (LaunchError, ModelError, UsageError)
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


def check_python(found: tuple[int, int] = sys.version_info[:2]) -> Check:
    """Checks the version of the interpreter."""
    what = f"midtoken {version('midtoken')}, Python {platform.python_version()}, {sys.executable}"
    if (3, 10) <= found <= (3, 14):
        return good(what)
    return note(what, "Only Python 3.10 to 3.14 are tested; use one of them if something fails.")


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
        yield good(await _describe_server(connection, took_s))
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


async def _describe_server(connection: Connection, took_s: float) -> str:
    stalled_ms = await connection.read_heartbeat_ms()
    state = "idle" if stalled_ms == 0 else f"busy, its last step was {stalled_ms:.0f} ms ago"
    runs_as = f", model as {connection.runs_as}" if connection.runs_as else ""
    return f"completion server at {connection.url}: {state}, connected in {took_s:.1f} s{runs_as}"


async def _check_completion(connection: Connection, is_default: bool) -> Check:
    request = Guard().clear(CompletionRequest(_PREFIX, max_tokens=8, extent=Extent.SINGLE_LINE), ())
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
    return wrong(f"{what}: {problem}", "" if isinstance(error, _WITH_ADVICE) else "Its log may say more.")


def check_document(path: Path, environment: Mapping[str, str], model_languages: tuple[str, ...] | None) -> Check:
    """Checks a file with the default settings. Those of an editor are not known here.

    `model_languages`: the languages that the model knows; None: any.
    """
    path = path.absolute()
    try:
        text = path.read_bytes().decode() if path.exists() else ""
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
    if not path.exists():
        return note(f"{path} does not exist yet; it would get suggestions")
    return good(f"{path} gets suggestions, unless the settings of your editor exclude it")


_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class _Editor:
    """How an editor is asked whether midtoken is set up in it."""

    name: str
    question: tuple[str, ...]  # arguments
    sign: str  # a pattern of a line in its answer if it is; the first group is shown
    advice: str  # if it is not


_FIND_PLUGIN = "lua io.stdout:write(vim.fn.has('nvim-0.10') == 1 and pcall(require, 'midtoken') and 'the plugin' or '')"
_NEOVIM = _Editor(
    "Neovim",
    ("--headless", "-c", _FIND_PLUGIN, "-c", "qa!"),
    r"(the plugin)$",
    "Neovim 0.10 or later needs the plugin, unless it is loaded later: see editors/neovim/README.md and "
    ":checkhealth midtoken.",
)
_VSCODE = _Editor(
    "VS Code",
    ("--list-extensions", "--show-versions"),
    r"^(midtoken\.midtoken\S*)$",
    "Run make vscode, then `{0} --install-extension build/editors/midtoken.vsix`.",
)
_HELIX = _Editor(
    "Helix",
    ("--health", "python"),
    r"✓.*?(/\S*/midtoken)\b",
    "Its languages.toml must name an installed midtoken: see editors/helix/README.md and `{0} --health python`.",
)
_EDITORS = {"nvim": _NEOVIM, "code": _VSCODE, "code-server": _VSCODE, "hx": _HELIX, "helix": _HELIX}


def check_editors(environment: Mapping[str, str]) -> Iterator[Check]:
    """Checks each editor that is found. They are run in the current folder, whose settings count."""
    paths = {program: shutil.which(program, path=environment.get("PATH", "")) for program in _EDITORS}
    for program, path in paths.items():
        if path is not None:
            yield _check(_EDITORS[program], program, path, environment)
    if not any(paths.values()):
        advice = "If you use nvim, hx, code or code-server, put it on the path."
        yield note("no supported editor is on the path", advice)


def _check(editor: _Editor, program: str, path: str, environment: Mapping[str, str]) -> Check:
    version = re.search(r"\d+\.\d\S*", _read_output([path, "--version"], environment))
    found = re.search(editor.sign, _read_output([path, *editor.question], environment), re.MULTILINE)
    shown = f"{editor.name} {version[0] if version else 'of an unknown version'} ({program})"
    if found is None:
        return note(f"{shown} without midtoken", editor.advice.format(program))
    return good(f"{shown} with {found[1]}")


def _read_output(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Returns what a program says; nothing if it fails."""
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode(errors="replace")


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
    yield check_python()
    with Console(stderr=True).status(_WAITING):
        async for check in check_server(options):
            yield check
    for check in check_editors(os.environ):
        yield check
    if options.file is not None:
        yield check_document(options.file, os.environ, find_languages(options))

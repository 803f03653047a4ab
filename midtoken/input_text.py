"""The text that a command is given: a file, or a cursor in one.

`ClearedText` reads what is sent and clears the requests: nothing of excluded files, and no secrets where text may leave
the machine, unless the options say otherwise.
"""

import argparse
import asyncio
import contextlib
import os
import re
import sys
from pathlib import Path
from typing import TypeVar

from inference.protocol.characters import CharacterRequest
from inference.protocol.completion import CompletionRequest
from lsp_server.context import Context, clean
from lsp_server.errors import ExcludedError, InSecretError
from lsp_server.exclusion import Policy
from lsp_server.guard import PLACEHOLDER, Cleared, Guard
from lsp_server.languages import list_endings
from lsp_server.settings import Settings
from midtoken.server_arguments import UsageError, add_connection_arguments, may_be_remote

_PLACE = re.compile(r"(.+?):(\d+)(?::(\d+))?", re.DOTALL)


def read_text(name: str) -> str:
    """Returns the text of the file; of standard input if the name is `-`. Raises UsageError."""
    try:
        return (sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()).decode()
    except OSError as error:
        raise UsageError(f"cannot read {name}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not UTF-8 at byte {error.start}") from None


def find_language(path: Path, known: tuple[str, ...] | None = None) -> str:
    """Returns which of the languages that the model knows the file is in, by its ending; otherwise the ending."""
    ending = path.suffix.lower()
    return next((each for each in known or () if ending in list_endings(each)), ending.removeprefix("."))


_WAIT_S = 30.0  # for the rules; longer than Git is given
_NEAR_CHARS = 2**18  # more than the window of most models, and in any script less than a request may have
_Request = TypeVar("_Request", CompletionRequest, CharacterRequest)


def add_cursor_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the cursor, `--stdin` and the arguments of `add_text_arguments`."""
    parser.add_argument(
        "cursor",
        metavar="FILE:LINE[:COL]",
        help="the cursor; lines and columns count from 1, and without COL it is at the end of the line",
    )
    parser.add_argument(
        "--stdin",
        action="store_true",
        help="read the text from standard input, such as an unsaved buffer, not from FILE",
    )
    add_text_arguments(parser)


def add_text_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds `--exclude`, `--send-excluded` and `--send-secrets`, and the arguments of `add_connection_arguments`."""
    parser.add_argument(
        "--exclude",
        action="append",
        default=[],
        metavar="PATTERN",
        help="also exclude files that match this pattern, as in .gitignore; may be repeated",
    )
    parser.add_argument(
        "--send-excluded", action="store_true", help="send a file even if a rule excludes it, such as one of Git's"
    )
    parser.add_argument(
        "--send-secrets", action="store_true", help=f"send secrets, and not {PLACEHOLDER}, to any machine"
    )
    add_connection_arguments(parser)


class ClearedText:
    """Reads what a command sends, and applies the rules of the language server.

    Raises UsageError for what cannot be read or may not be sent. Prints to stderr if a secret was replaced.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        """`options`: the parsed arguments of `add_text_arguments`."""
        self._sends_excluded = options.send_excluded
        self._paths: dict[str, Path] = {}  # of the files that were read, by URI
        self._guard = Guard(Policy(os.environ), is_remote=may_be_remote(options))
        settings = Settings(exclude=tuple(options.exclude), redact_secrets=not options.send_secrets)
        self._guard.configure(settings, [Path.cwd().as_uri()])
        self._note = ""  # on what is sent, printed once

    def read_file(self, name: str) -> bytes:
        """Returns the content of the file; of standard input if the name is `-`."""
        text = read_text(name)
        if name != "-":
            self._paths[Path(name).absolute().as_uri()] = Path(name)
        return self._redact(Context(text, "")).prefix.encode()

    def note_languages(self, known: tuple[str, ...]) -> None:
        """Prints to stderr if the model knows only other languages than that of a file; none: it knows any."""
        for path in self._paths.values():
            if known and find_language(path, known) not in known:
                note = f"the model knows only {', '.join(known)}, so an editor shows nothing in {path}"
                print(f"midtoken: {note}", file=sys.stderr)

    def read_cursor(self, place: str, from_stdin: bool = False) -> Context:
        """Returns the text around the cursor that `FILE:LINE:COLUMN` names. Lines and columns count from 1.

        Columns are characters; column 1 is before the first one. Without a column, the cursor is at the end of the
        line. `from_stdin`: standard input has the text of the file.
        """
        found = _PLACE.fullmatch(place)
        if found is None:
            raise UsageError(f"{place!r} is not FILE:LINE:COLUMN, as in app.py:12:9")
        path, line, content = Path(found[1]), int(found[2]), read_text("-" if from_stdin else found[1])
        lines = content.split("\n" if "\n" in content else "\r")
        if not 1 <= line <= len(lines):
            raise UsageError(f"{path} has {len(lines)} lines; there is no line {line}")
        length = len(lines[line - 1].rstrip("\r"))
        column = int(found[3]) if found[3] else length + 1
        if not 1 <= column <= length + 1:
            raise UsageError(
                f"line {line} of {path} has {length} characters; the column must be between 1 and {length + 1}"
            )
        at = sum(len(each) + 1 for each in lines[: line - 1]) + column - 1
        self._paths[path.absolute().as_uri()] = path
        context = self._redact(Context(clean(content[:at]), clean(content[at:])))
        return Context(context.prefix[-_NEAR_CHARS:], context.suffix[:_NEAR_CHARS])

    def clear(self, request: _Request) -> Cleared[_Request]:
        """Returns a request with what was read, as it may be sent."""
        languages = {} if self._sends_excluded else dict.fromkeys(self._paths, "")
        try:
            with contextlib.suppress(TimeoutError):
                asyncio.run(asyncio.wait_for(self._guard.exclusions.ask(languages), _WAIT_S))
            cleared = self._guard.clear(request, languages)
        except ExcludedError as error:
            raise UsageError(f"{self._paths[error.uri]}: {error}; --send-excluded sends it anyway") from None
        except InSecretError as error:
            raise UsageError(f"{error}; --send-secrets sends it anyway") from None
        if self._note:
            print(self._note, file=sys.stderr)
            self._note = ""
        return cleared

    def _redact(self, context: Context) -> Context:
        try:
            redacted = self._guard.redact_context(context)
        except InSecretError as error:
            raise UsageError(f"{error}; --send-secrets sends it anyway") from None
        if redacted != context:
            self._note = f"midtoken: {PLACEHOLDER} is sent instead of each secret; --send-secrets sends them"
        return redacted

"""The text that a command sends: not of excluded files, and without secrets, unless its options say otherwise."""

import argparse
import asyncio
import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from lsp_server.context import Context
from lsp_server.errors import ExcludedError, InSecretError
from lsp_server.privacy.exclusion import Policy
from lsp_server.privacy.guard import Cleared, Guard
from lsp_server.privacy.redaction import PLACEHOLDER, Excerpt
from lsp_server.settings import Settings
from midtoken.errors import UsageError
from midtoken.input_text import read_cursor, read_file
from midtoken.server_arguments import may_be_remote

_WAIT_S = 30.0  # for the rules; longer than Git is given
_NEAR_CHARS = 1_000_000  # more than the window of most models
_Content = TypeVar("_Content")


def add_rule_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds `--exclude`, `--send-excluded` and `--send-secrets`."""
    parser.add_argument(
        "--exclude",
        action="append",
        default=[],
        metavar="PATTERN",
        help="send no file that this pattern matches, either; as in .gitignore. May be given more than once",
    )
    parser.add_argument(
        "--send-excluded", action="store_true", help="send a file although a rule excludes it, such as one of Git"
    )
    parser.add_argument("--send-secrets", action="store_true", help=f"send secrets, not {PLACEHOLDER} in their place")


class ClearedText:
    """Reads what a command sends, and applies the rules of the language server.

    Raises UsageError for what cannot be read or may not be sent. It tells on stderr that a secret was replaced.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        """`options`: the parsed arguments of `add_rule_arguments` and `add_connection_arguments`."""
        self._sends_excluded = options.send_excluded
        self._guard = Guard(Policy(os.environ), is_remote=may_be_remote(options))
        settings = Settings(exclude=tuple(options.exclude), redact_secrets=not options.send_secrets)
        self._guard.configure(settings, [Path.cwd().as_uri()])

    def read_file(self, name: str | None) -> Cleared[bytes]:
        """Returns the content of the file; of standard input if the name is `-`; nothing if there is no name."""
        text = "" if name is None else os.fsdecode(read_file(name))
        path = None if name is None or name == "-" else Path(name)
        return self._clear(path, text, lambda uri: self._guard.clear(uri, text)).map(os.fsencode)

    def read_cursor(self, place: str, from_stdin: bool = False) -> Cleared[Context]:
        """Returns the text around the cursor that `FILE:LINE:COLUMN` names. See `midtoken.input_text.read_cursor`."""
        path, context = read_cursor(place, from_stdin)
        return self._clear_context(path, context).map(
            lambda each: Context(each.prefix[-_NEAR_CHARS:], each.suffix[:_NEAR_CHARS])
        )

    def read_end(self, text: str) -> Cleared[bytes]:
        """Returns a text that ends at the cursor; standard input if it is `-`."""
        text = os.fsdecode(read_file("-")) if text == "-" else text
        return self._clear_context(None, Context(text, "")).map(lambda each: os.fsencode(each.prefix))

    def _clear_context(self, path: Path | None, context: Context) -> Cleared[Context]:
        return self._clear(path, context, lambda uri: self._guard.clear_excerpt(uri, Excerpt("", context, "")))

    def _clear(
        self, path: Path | None, content: _Content, clear: Callable[[str | None], Cleared[_Content]]
    ) -> Cleared[_Content]:
        uri = None if path is None or self._sends_excluded else path.absolute().as_uri()
        try:
            with contextlib.suppress(TimeoutError, asyncio.TimeoutError):  # the same since Python 3.11
                asyncio.run(asyncio.wait_for(self._guard.wait_until_known({} if uri is None else {uri: ""}), _WAIT_S))
            cleared = clear(uri)
        except ExcludedError as error:
            raise UsageError(f"{path}: {error}; --send-excluded sends it all the same") from None
        except InSecretError as error:
            raise UsageError(f"{error}; --send-secrets sends it all the same") from None
        if cleared.value != content:
            print(f"midtoken: {PLACEHOLDER} is sent for each secret; --send-secrets sends them", file=sys.stderr)
        return cleared

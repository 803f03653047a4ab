"""Show statistics of suggestions by language and day: shown, accepted, keys saved, first reads.

The language servers of this user count it, for this machine only.
"""

import argparse
from pathlib import Path

from lsp_server.usage import UsageFile, describe, find_usage_path
from midtoken.server_arguments import UsageError, number_from


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that `run` reads."""
    parser.add_argument(
        "--days", type=number_from(1, 36_500), default=7, metavar="N", help="the last N days (default: %(default)s)"
    )
    parser.add_argument("--language", metavar="L", help="one language, by its identifier in LSP")
    parser.add_argument("--delete", action="store_true", help="delete all statistics")
    parser.add_argument("--state-dir", type=Path, metavar="DIR", help="the --state-dir of midtoken lsp")


def run(options: argparse.Namespace) -> int:
    """Prints or deletes what was counted. Raises UsageError and LaunchError."""
    path = find_usage_path(options.state_dir)
    try:
        print(_delete_or_read(UsageFile(path), options), end="")
    except OSError as error:
        raise UsageError(f"cannot use {path}: {error.strerror}") from None
    return 0


def _delete_or_read(file: UsageFile, options: argparse.Namespace) -> str:
    if options.delete:
        file.delete()
        return "The statistics are deleted.\n"
    return describe(file.read(options.days, options.language))

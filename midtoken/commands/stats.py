"""Show statistics of suggestions by language and day: shown, accepted, keys saved, wrong characters.

The language servers of this user count it, for this machine only.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from lsp_server.usage import UsageFile, describe, find_usage_path
from midtoken.server_arguments import UsageError, number_from


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that `run` reads."""
    parser.add_argument(
        "--days", type=number_from(1, 36_500), default=7, metavar="N", help="the last N days (default: %(default)s)"
    )
    parser.add_argument("--language", metavar="L", help="one language, by its identifier in LSP")
    parser.add_argument("--json", action="store_true", help="print a list with an object for each day and language")
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
    usage = file.read(options.days, options.language)
    if not options.json:
        return describe(usage)
    entries = [{"day": str(day), "language": name, **asdict(counts)} for (day, name), counts in usage.items()]
    return json.dumps(entries, indent=2) + "\n"

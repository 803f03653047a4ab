"""The `midtoken` command.

Each subcommand is a module of `midtoken.commands` with `add_arguments(parser)` and `run(options)`, which returns the
exit status. Only the module of the chosen subcommand is imported, because importing all of them takes most of a second.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from inference.errors import MidtokenError

# What `midtoken --help` says of each subcommand. The module is called like it, with underscores.
_SUMMARIES = {
    "demo": "Show what an editor would draw while a file is typed: with healing and without, side by side.",
    "complete": "Print the completion at a cursor.",
    "explain": "Show what healing does at a cursor, and what each healing strategy completes there.",
    "surprisal": "Show how many bits each character of a text costs the model.",
    "next-byte": "Show which byte comes next after a text, and which tokenizations of the text predict it.",
    "lsp": "The language server on stdin and stdout, for editors to start.",
    "serve": "Run a completion server on this machine until it is interrupted.",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the subcommand that the arguments name and returns its exit status."""
    options = _build_parser().parse_args(arguments)
    try:
        status: int = options.run(options)
    except MidtokenError as error:
        print(f"midtoken: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the program that reads the output has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return status


class _SubcommandParser(argparse.ArgumentParser):
    """The parser of one subcommand. It imports the subcommand's module when it is asked to parse."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # overloaded in argparse
        name = self.prog.rpartition(" ")[2]
        module = import_module(f"midtoken.commands.{name.replace('-', '_')}")
        module.add_arguments(self)
        self.set_defaults(run=module.run)
        return super().parse_known_args(args, namespace)


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="midtoken", description="Code completion from any cursor position.")
    subparsers = parser.add_subparsers(dest="subcommand", required=True, parser_class=_SubcommandParser)
    for name, summary in _SUMMARIES.items():
        subparsers.add_parser(name, help=summary, description=summary)
    return parser

"""The `midtoken` command.

Each subcommand is a module of `midtoken.commands` with `add_arguments(parser)` and `run(options)`, which returns the
exit status. Only the module of the chosen subcommand is imported, because importing all of them takes most of a second.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

from inference.errors import MidtokenError, silence_libraries

# The help of each subcommand. Its module has the same name.
_SUMMARIES = {
    "demo": "Show what is completed at each key while a file is typed, with and without healing, one below the other.",
    "complete": "Print the completion at a cursor.",
    "explain": "Show what healing does at a cursor, and the completion of each healing strategy.",
    "playground": "Serve a local page with an editor that draws what healing does at the cursor.",
    "characters": "Print the surprisal of each byte of a text, and the distribution of the next one, as JSON.",
    "models": "List models that can replace the bundled one, or download one.",
    "doctor": "Check whether completions work here, and say what to do if they do not.",
    "lsp": "Run the language server on stdin and stdout. Editors start it.",
    "serve": "Run a completion server on this machine until it is interrupted.",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the subcommand and returns its exit status."""
    silence_libraries()
    try:
        options = build_parser().parse_args(arguments)  # imports the subcommand
        status: int = options.run(options)
    except MidtokenError as error:
        print(f"midtoken: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of the output has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return status


class Parser(argparse.ArgumentParser):
    """A parser whose usage is short, and whose errors are one line that names the help."""

    def format_help(self) -> str:
        """See `argparse`. The usage names no options: they are listed below it."""
        formatter = self._get_formatter()
        formatter.add_usage(None, self._get_positional_actions(), [], prefix="")
        places = formatter.format_help().strip().removeprefix(self.prog)
        self.usage = f"%(prog)s [OPTION...]{places.replace('%', '%%')}"
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """See `argparse`."""
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # overloaded in argparse
        """See `argparse`. What is unknown is refused here, where the subcommand is known."""
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return options, unknown


class _SubcommandParser(Parser):
    """The parser of one subcommand. It imports the subcommand's module when it parses."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # overloaded in argparse
        name = self.prog.rpartition(" ")[2]
        module = import_module(f"midtoken.commands.{name}")
        module.add_arguments(self)
        self.set_defaults(run=module.run)
        return super().parse_known_args(args, namespace)


def build_parser() -> argparse.ArgumentParser:
    """The parser of the command line; a subcommand's arguments are added when it is named."""
    parser = Parser(
        prog="midtoken",
        description="Code completion at any cursor position. `midtoken demo` shows it at work.",
        epilog="`midtoken COMMAND --help` lists the options of a command.",
    )

    def run(options: argparse.Namespace) -> int:
        from importlib.metadata import version  # here, because it is slow to import

        print(f"midtoken {version('midtoken')}") if options.version else parser.print_help()
        return 0

    parser.add_argument("--version", action="store_true", help="print the version")
    parser.set_defaults(run=run)
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=_SubcommandParser)
    for name, summary in _SUMMARIES.items():
        subparsers.add_parser(name, help=summary, description=summary)
    return parser

"""The `midtoken` command.

Each subcommand is a module with `add_arguments(parser)` and `run(options)`, which returns the exit status.
"""

import argparse
import os
import sys
from types import ModuleType

from inference.errors import MidtokenError
from midtoken.commands import complete, demo, explain, lsp, next_byte, serve, surprisal

# The first line of a module's docstring is what `midtoken --help` says of its subcommand.
_SUBCOMMANDS: dict[str, ModuleType] = {
    "demo": demo,
    "complete": complete,
    "explain": explain,
    "surprisal": surprisal,
    "next-byte": next_byte,
    "lsp": lsp,
    "serve": serve,
}


def main(arguments: list[str] | None = None) -> int:
    """Runs the subcommand that the arguments name and returns its exit status."""
    options = _build_parser().parse_args(arguments)
    try:
        status: int = _SUBCOMMANDS[options.subcommand].run(options)
    except MidtokenError as error:
        print(f"midtoken: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return status


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="midtoken", description="Code completion from any cursor position.")
    subparsers = parser.add_subparsers(dest="subcommand", required=True)
    for name, module in _SUBCOMMANDS.items():
        summary = (module.__doc__ or "").partition("\n")[0]
        module.add_arguments(subparsers.add_parser(name, help=summary, description=summary))
    return parser

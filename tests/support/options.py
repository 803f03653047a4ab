"""Options as the command line parses them."""

import argparse
from collections.abc import Callable


def parse_options(add_arguments: Callable[[argparse.ArgumentParser], None], *arguments: str) -> argparse.Namespace:
    """Parses the arguments with a parser that has only what `add_arguments` adds."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(arguments)

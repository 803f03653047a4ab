"""Print the surprisal of each byte of a text, and the distribution of the next one, as JSON."""

import argparse
import dataclasses
import json
import math

from midtoken.connection import open_model
from midtoken.input_text import ClearedText, add_text_arguments

_NUM_MEMBERS = 8  # of the most probable tokenizations of the text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that `run` reads."""
    parser.add_argument("file", metavar="FILE", help="the text; - reads standard input")
    add_text_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Prints two lines. JSON has no infinity: null is the surprisal of what is impossible."""
    cleared = ClearedText(options)
    text = cleared.read_file(options.file)
    with open_model(options, cleared) as model:
        surprisals, following = model.surprisal(text), model.next_bytes(text, _NUM_MEMBERS)
    print(json.dumps({"surprisals": [each if math.isfinite(each) else None for each in surprisals]}))
    print(json.dumps(dataclasses.asdict(following)))
    return 0

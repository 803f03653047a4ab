"""Ordinary situations at a keyboard: what a person has written, with the cursor at `▏`. Two blank lines divide them.

Nobody chose them for what the model writes there. Those that were reported stand first.
"""

from pathlib import Path

from benchmarks.corpora.cuts import Gap, GapKind

_CURSOR = "▏"


def list_situations() -> list[Gap]:
    """Returns the situations. Nobody knows what is missing."""
    texts = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").rstrip("\n").split("\n\n\n")
    cut = [text.partition(_CURSOR) for text in texts]
    return [Gap(GapKind.LINE, before, "", after + "\n") for before, _, after in cut]

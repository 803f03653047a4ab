"""Cursors inside identifiers as a user reaches them: the text was requested a few keys earlier already."""

from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.corpora.cuts import Cut, draw_cuts
from models.training.corpus import SourceFile

_CONTEXT_CHARS = 2500  # 400 to 1,000 tokens, so that no contestant has to drop any
_KEYS_BETWEEN = 3
_SUFFIX_CHARS = 700


@dataclass(frozen=True, slots=True)
class Visit:
    """A cursor, the text before it, and the text three keys earlier.

    The text begins with a visible character, because transformers' token healing removes blanks there.
    """

    cut: Cut
    text: str
    suffix: str  # what follows the identifier

    @property
    def earlier_text(self) -> str:
        """What was requested before. No text of another visit begins as this one does."""
        return self.text[:-_KEYS_BETWEEN]


def draw_visits(files: Iterable[SourceFile], num_visits: int, seed: int) -> list[Visit]:
    """Draws seeded visits. At most one is to the beginning of a file, so that its earlier text was never read."""
    visits: list[Visit] = []
    from_start: set[str] = set()
    for cut in draw_cuts(files, 2 * num_visits, 0, seed):
        context = cut.find_context(_CONTEXT_CHARS)
        if len(context) == len(cut.prefix):
            if cut.path in from_start:
                continue
            from_start.add(cut.path)
        visits.append(Visit(cut, context.lstrip(), cut.suffix[:_SUFFIX_CHARS]))
    return visits[:num_visits]

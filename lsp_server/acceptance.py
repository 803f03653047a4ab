"""What is suggested in a document, and how much of that is accepted."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from inference.brackets import CLOSER_OF, QUOTES
from inference.likely_text import is_word
from inference.protocol.completion import CompletionStats
from lsp_server.context import clean
from lsp_server.documents import Change, Document, Place
from lsp_server.filters import Insertion
from lsp_server.usage import Counts, UsageFile

_FEW_TOKENS = 64  # that are read again where a word or a line has changed
_PAIRS = {*(opener + closer for opener, closer in CLOSER_OF.items()), *(2 * quote for quote in QUOTES)}


class AcceptanceCounter:
    """Counts what becomes of the suggestions in one document.

    The editor does not say what was accepted. What an edit inserts at the place of the suggestion is

    - accepted, if the suggestion begins with it, it has two characters or more that came in one step, and it is all of
      the suggestion or ends at the end of a word;
    - typed, if the suggestion begins with anything else of it, as with a single letter;
    - otherwise a sign that the rest of the suggestion was wrong.
    """

    def __init__(self, document: Document, usage: UsageFile) -> None:
        self.lines: frozenset[str] = frozenset()  # those that were suggested last, from the start of the cursor's line
        self._document = document
        self._usage = usage
        self._shown: _Offer | None = None

    def show(self, place: Place, insertions: Sequence[Insertion]) -> None:
        """To be called with what the editor is given to show."""
        number, before, _ = self._document.split_at(place.position)
        self.lines = frozenset(before + each.text for each in insertions)
        offer = _Offer(number, before, tuple(each.text for each in insertions))
        if self._shown is None or not offer.continues(self._shown):
            self._count(Counts(shown=1))
        self._shown = offer

    def follow(self, changes: Sequence[Change]) -> None:
        """To be called when the edits of a notification were applied."""
        shown, self._shown = self._shown, None
        if shown is not None and self._document.problem is None:
            is_typed = all(len(change.text) < 2 for change in changes)  # also several letters at once
            self._shown, counts = shown.follow(self._document, is_typed)
            self._count(counts)

    def note_costs(self, stats: CompletionStats) -> None:
        """To be called with what a suggestion has cost."""
        if stats.num_read_tokens > _FEW_TOKENS:
            self._count(Counts(first_reads=1))

    def _count(self, counts: Counts) -> None:
        self._usage.add(self._document.language_id, counts)


@dataclass(frozen=True, slots=True)
class _Offer:
    """A suggestion, or what is left of it."""

    line: int
    before: str  # the line up to the cursor
    texts: tuple[str, ...]  # the editor shows one of them

    def continues(self, other: "_Offer") -> bool:
        """Whether it is the same suggestion, of which some was typed, or more is known."""
        one, two = (each.before + each.texts[0] for each in (self, other))
        return self.line == other.line and (one.startswith(two) or two.startswith(one))

    def follow(self, document: Document, is_typed: bool) -> "tuple[_Offer | None, Counts]":
        """Returns what is left after an edit, None if nothing, and what the edit counts as."""
        change = document.last_edit
        if change is None or change.line < self.line:
            return None, Counts()
        written = clean("".join(document.lines[self.line : change.line]) + change.before)
        if change.text in _PAIRS:
            written = written[:-1]  # without the closer that an editor adds to an opener
        if not written.startswith(self.before):
            return None, Counts()
        part = written[len(self.before) :]
        for text in self.texts:
            if text.startswith(part) or part.startswith(text):
                return self._move(part), Counts() if is_typed else _count_accepted(part, text)
        is_here = self.before.startswith(written.removesuffix(clean(change.text)))
        return None, Counts(wrong_chars=self._count_wrong(part)) if is_here else Counts()

    def _move(self, part: str) -> "_Offer | None":
        """Returns what is left after `part`."""
        before = (self.before + part).rpartition("\n")[2]
        left = tuple(text[len(part) :] for text in self.texts if text.startswith(part) and text != part)
        return _Offer(self.line + part.count("\n"), before, left) if left else None

    def _count_wrong(self, part: str) -> int:
        agreed = takewhile(lambda pair: pair[0] == pair[1], zip(part, self.texts[0], strict=False))
        return len(self.texts[0]) - len(list(agreed))


def _count_accepted(part: str, shown: str) -> Counts:
    """`part`: of the suggestion, inserted in one step. A line end with the next line's indentation is typed so, too."""
    if len(part.strip()) < 2:
        return Counts()
    left, saved = shown[len(part) :], min(len(part), len(shown)) - 1
    if not left:
        return Counts(whole=1, saved_keys=saved)
    if left.startswith("\n"):
        return Counts(line=1, saved_keys=saved)
    is_cut = is_word(part[-1]) and is_word(left[0])
    return Counts() if is_cut else Counts(word=1, saved_keys=saved)

"""What is suggested in a document, and how much of that is accepted."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from inference.brackets import CLOSER_OF, QUOTES
from inference.likely_text import is_word
from lsp_server.documents import Change, Document, Place
from lsp_server.filters import Insertion
from lsp_server.usage import Counts, UsageFile

_MAX_LINE_CHARS = 10_000  # in a longer line, nothing is counted: each key would compare all of it
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
        number, before, after = self._document.split_at(place.position)
        self.lines = frozenset(before + each.text for each in insertions)
        offer = _Offer(number, len(self._document.lines), before, after.rstrip("\r\n"), tuple(insertions))
        if self._shown is None or not offer.continues(self._shown):
            self._count(Counts(shown=1))
        self._shown = offer if len(before) + len(after) <= _MAX_LINE_CHARS else None

    def follow(self, changes: Sequence[Change]) -> None:
        """To be called when the edits of a notification were applied."""
        shown, self._shown = self._shown, None
        if shown is not None and self._document.problem is None:
            is_typed = all(len(change.text) < 2 for change in changes)  # also several letters at once
            self._shown, counts = shown.follow(self._document, is_typed)
            self._count(counts)

    def _count(self, counts: Counts) -> None:
        self._usage.add(self._document.language_id, counts)


@dataclass(frozen=True, slots=True)
class _Offer:
    """A suggestion, or what is left of it, and the text around it."""

    line: int
    num_lines: int  # of the document
    before: str  # the line up to the cursor
    after: str  # and after it
    insertions: tuple[Insertion, ...]  # the editor shows one of them

    def continues(self, other: "_Offer") -> bool:
        """Whether it is the same suggestion, of which some was typed, or more is known."""
        one, two = (each.before + each.insertions[0].text for each in (self, other))
        return self.line == other.line and (one.startswith(two) or two.startswith(one))

    def follow(self, document: Document, is_typed: bool) -> "tuple[_Offer | None, Counts]":
        """Returns what is left after an edit, None if nothing, and what the edit counts as."""
        text = self._find_text(document)
        if text is None or text == self.before + self.after:
            return self if text else None, Counts()
        for insertion in self.insertions:
            part = self._find_part(text, insertion)
            if part is not None:
                counts = Counts() if is_typed else _count_accepted(part, insertion.text)
                return self._move(text, part, len(document.lines)), counts
        return None, Counts(wrong_chars=self._count_wrong(text))

    def _find_text(self, document: Document) -> str | None:
        """Returns the line as it is now, with lines that were inserted after it; None if it begins otherwise."""
        end = self.line + 1 + len(document.lines) - self.num_lines
        text = "".join(document.lines[self.line : end]).replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n")
        return text if text.startswith(self.before) else None

    def _find_part(self, text: str, insertion: Insertion) -> str | None:
        """Returns what the text now has of an insertion; None if something else was inserted."""
        for after in (self.after[len(insertion.replaced_after) :], self.after):
            part = self._cut_out(text, after)
            if part and (insertion.text.startswith(part) or part.startswith(insertion.text)):
                return part
        return None

    def _cut_out(self, text: str, after: str) -> str:
        """Returns what was inserted in front of `after`, without the closer that an editor adds to an opener."""
        inserted = text[len(self.before) : len(text) - len(after)] if text.endswith(after) else ""
        return inserted[:1] if inserted in _PAIRS else inserted

    def _move(self, text: str, part: str, num_lines: int) -> "_Offer | None":
        """Returns what is left after `part`."""
        before, after = self.before + part, text[len(self.before + part) :]
        more = after.removesuffix(self.after) if after.endswith(self.after) else None
        left = tuple(
            Insertion(each.text[len(part) :], "" if more is None else more + each.replaced_after)
            for each in self.insertions
            if each.text.startswith(part) and each.text != part
        )
        before = before.rpartition("\n")[2]
        return _Offer(self.line + part.count("\n"), num_lines, before, after, left) if left else None

    def _count_wrong(self, text: str) -> int:
        inserted, shown = self._cut_out(text, self.after), self.insertions[0].text
        agreed = takewhile(lambda pair: pair[0] == pair[1], zip(inserted, shown, strict=False))
        return len(shown) - len(list(agreed)) if inserted else 0


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

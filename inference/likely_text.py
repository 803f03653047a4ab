"""Generated text with its probabilities, and how much of it is likely enough to be shown."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import regex

from inference.protocol.completion import CompletionChunk

_BELOW = 1 - 1e-9  # by less than a probability is rounded
_WORD = regex.compile(r"\w")  # `re` and `isalnum` know no marks


@dataclass(frozen=True, slots=True)
class LikelyToken:
    """A token of a text, or a part of one."""

    start: int  # its first character
    text: str
    log_prob: float  # log P(token | the text before it). The first is the choice of a path and a token
    text_log_prob: float  # of all tokens up to this one


@dataclass(slots=True)
class LikelyText:
    """The text of one candidate, as far as it has arrived."""

    text: str = ""
    _ends: list[int] = field(default_factory=list)  # where its tokens end, in characters
    _log_probs: list[float] = field(default_factory=list)  # log P(text up to there | the text before the cursor)

    def add(self, chunk: CompletionChunk) -> None:
        """Adds a chunk of the candidate."""
        self._ends += [len(self.text) + end for end in chunk.text_ends]
        self._log_probs += chunk.log_probs
        self.text += chunk.text

    def read_tokens(self, start: int = 0) -> Iterator[LikelyToken]:
        """Yields the tokens from `start` on, where one begins; none if no probabilities are known."""
        at = bisect_right(self._ends, start)
        before = self._log_probs[at - 1] if at else 0.0
        for end, log_prob in zip(self._ends[at:], self._log_probs[at:], strict=True):
            yield LikelyToken(start, self.text[start:end], log_prob - before, log_prob)
            start, before = end, log_prob

    def find_pieces(self) -> Iterator[tuple[str, float]]:
        """Yields what each lower confidence adds to the text that is shown, and the highest one with which it is."""
        start = 0
        for token in self.read_tokens():
            probability = math.exp(token.text_log_prob)
            end = self.count_likely(0, probability * _BELOW)
            if end > start:
                yield self.text[start:end], probability
            start = end

    def cut_chunk(self, chunk: CompletionChunk, start: int, end: int) -> CompletionChunk:
        """Returns the chunk with the text from `start` to `end` instead, and its probabilities."""
        part = slice(bisect_right(self._ends, start), bisect_left(self._ends, end) + 1 if end > start else 0)
        text_ends = tuple(min(each, end) - start for each in self._ends[part])
        return replace(chunk, text=self.text[start:end], text_ends=text_ends, log_probs=tuple(self._log_probs[part]))

    def count_shown(self, confidence: float, has_ended: bool) -> int:
        """The number of characters to show before anything is typed. Until the text has ended: whatever follows."""
        end = self.count_likely(0, confidence)
        is_settled = has_ended or end < len(self.text) or not self._ends or confidence <= 0
        return end if is_settled else len(self.text[: self._find_boundary(0, end)].rstrip())

    def count_likely(self, num_typed: int, confidence: float) -> int:
        """The number of characters to show, with the first `num_typed`, which the user has typed since.

        What follows them is as likely as all of it, divided by the probability of what was typed. So each key that
        agrees with the text reveals more of it. A token that the user has begun counts as typed. If no probabilities
        are known, all of the text is shown. It ends before what is no probability.
        """
        if not self._ends or confidence <= 0:
            return len(self.text)
        at = bisect_left(self._ends, num_typed)
        typed = self._log_probs[min(at, len(self._ends) - 1)] if num_typed else 0.0
        least = typed + math.log(confidence)
        while at < len(self._ends) and least <= self._log_probs[at] <= 0.0:
            at += 1
        if at == len(self._ends):
            return len(self.text)
        return self._find_boundary(num_typed, self._ends[at - 1] if at else 0)

    def _find_boundary(self, num_typed: int, end: int) -> int:
        """Cuts back to whole words, except for the word that is being typed.

        After the first line it cuts back to whole lines, without blank ones at the end.

        To complete the word instead was measured: it shows more that is wrong, and saves no more keys.
        """
        end = max(end, num_typed)
        if end > num_typed and is_word(self.text[end : end + 1] or "_"):  # at the end, a word may go on
            word = end
            while word > num_typed and is_word(self.text[word - 1]):
                word -= 1
            end = word if word > num_typed else end
        line_end = self.text.rfind("\n", num_typed, end)
        return end if line_end < 0 else max(num_typed, len(self.text[:line_end].rstrip()))


def is_word(char: str) -> bool:
    r"""True for a character of a name: Unicode's `\w` (UTS #18, annex C), so combining marks and joiners are some."""
    return _WORD.match(char) is not None

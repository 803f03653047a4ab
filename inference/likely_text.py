"""Generated text with its probabilities, and how much of it is likely enough to be shown."""

import math
from bisect import bisect_left
from dataclasses import dataclass, field

from inference.protocol.completion import CompletionChunk


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

    def find_end(self, num_typed: int, confidence: float) -> int:
        """The number of characters to show, with the first `num_typed`, which the user has typed since.

        What follows them is as likely as all of it, divided by the probability of what was typed. So each key that
        agrees with the text reveals more of it. A token that the user has begun counts as typed. If no probabilities
        are known, all of the text is shown.
        """
        if not self._ends or confidence <= 0:
            return len(self.text)
        at = bisect_left(self._ends, num_typed)
        typed = self._log_probs[min(at, len(self._ends) - 1)] if num_typed else 0.0
        least = typed + math.log(confidence)
        while at < len(self._ends) and self._log_probs[at] >= least:
            at += 1
        if at == len(self._ends):
            return len(self.text)
        return self._find_boundary(num_typed, self._ends[at - 1] if at else 0)

    def _find_boundary(self, num_typed: int, end: int) -> int:
        """Cuts back to whole words, except for the word that is being typed, and after the first line to whole lines.

        To complete the word instead was measured: it shows more that is wrong, and saves no more keys.
        """
        end = max(end, num_typed)
        if end > num_typed and is_word(self.text[end]):
            word = end
            while word > num_typed and is_word(self.text[word - 1]):
                word -= 1
            end = word if word > num_typed else end
        line_end = self.text.rfind("\n", num_typed, end)
        return end if line_end < 0 else line_end


def is_word(char: str) -> bool:
    """True for a character of a name."""
    return char.isalnum() or char == "_"

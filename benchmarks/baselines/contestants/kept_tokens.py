"""Token ids of a text that grows at its end, without tokenizing all of it for each key."""

from collections.abc import Callable, Sequence

Encode = Callable[[str], list[int]]


class KeptTokens:
    """Keeps the token ids up to the start of the last line.

    With the tokenizer of the default model, a token never goes beyond a line break that a line with something in it
    follows, or nothing but blanks.
    """

    def __init__(self, encode: Encode) -> None:
        self._encode = encode
        self._head = ""
        self._head_ids: list[int] = []

    def encode(self, text: str) -> list[int]:
        """The ids of the whole text, as `encode` gives them."""
        start = text.rfind("\n") + 1
        if not (text.startswith(self._head) and _is_line_start(text, len(self._head))):
            self._head, self._head_ids = "", []
        if start > len(self._head):
            self._head_ids = self._head_ids + self._encode(text[len(self._head) : start])
            self._head = text[:start]
        return self._head_ids + self._encode(text[len(self._head) :])


def count_common(first: Sequence[int], second: Sequence[int]) -> int:
    """How many ids both begin with."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(first), len(second)))


def _is_line_start(text: str, at: int) -> bool:
    """Whether the line that begins at `at` has more than blanks."""
    return bool(text[at:].partition("\n")[0].strip())

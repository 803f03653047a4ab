"""The special tokens around the sections of a fill-in-the-middle prompt."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FimMarkers:
    """The token ids of one model's markers."""

    prefix: int
    suffix: int
    middle: int | None  # None: the suffix comes first, and no marker follows the prefix

    @property
    def num_tokens(self) -> int:
        """The number of markers in a prompt."""
        return 2 if self.middle is None else 3

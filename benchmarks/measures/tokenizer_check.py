"""Whether the product heals right with a tokenizer, refuses it by name, or is wrong."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TokenizerRow:
    """The outcome for one tokenizer."""

    name: str
    source: str
    outcome: str  # "right", "refused" or "wrong"
    reason: str  # the words of the refusal, or the first defect; empty if right
    num_cuts: int
    mean_healed_bytes: float | None


def check_tokenizers() -> list[TokenizerRow]:
    """A place for the rows of tokenizers, which are measured elsewhere."""
    return []

"""The outcome of one check."""

from dataclasses import dataclass
from enum import Enum


class Mark(Enum):
    """How it stands."""

    GOOD = "✓"
    NOTE = "!"  # completions work all the same
    WRONG = "✗"  # completions do not work


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report."""

    mark: Mark
    what: str
    advice: str = ""  # one sentence on what to do


def good(what: str) -> Check:
    """Returns a check that found nothing wrong."""
    return Check(Mark.GOOD, what)


def note(what: str, advice: str = "") -> Check:
    """Returns a check that found something to know."""
    return Check(Mark.NOTE, what, advice)


def wrong(what: str, advice: str) -> Check:
    """Returns a check that found why there are no completions."""
    return Check(Mark.WRONG, what, advice)

"""What replays of random editing have done, and after which steps an editor did not show what it should."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Counts:
    """How often things happened, so that a replay that checks nothing is noticed."""

    steps: int = 0
    shown: int = 0
    accepted: int = 0
    accepted_parts: int = 0
    dismissed: int = 0
    undone: int = 0

    def add(self, other: "Counts") -> None:
        """Adds the counts of another replay."""
        for name, count in vars(other).items():
            setattr(self, name, getattr(self, name) + count)


@dataclass
class Outcome:
    """What replays have done, and what was wrong: for each mismatch, the difference and the steps before it."""

    counts: Counts = field(default_factory=Counts)
    mismatches: list[str] = field(default_factory=list)


def find_line_end(seed: int) -> str:
    """Returns that of the file of a replay: every other replay has that of Windows."""
    return "\n" if seed % 2 else "\r\n"


def draw_seed() -> int:
    """Returns a new seed for a long run, which prints it."""
    return random.SystemRandom().randrange(10**6)


def run_replays(play: Callable[[int, int], Outcome], num_steps: int, seed: int, steps_each: int = 150) -> Outcome:
    """Plays replays until all steps are done. `play` plays one with a seed and a number of steps in a fresh editor."""
    total = Outcome()
    while total.counts.steps < num_steps:
        played = play(seed, min(steps_each, num_steps - total.counts.steps))
        total.counts.add(played.counts)
        total.mismatches += [f"seed {seed}: {mismatch}" for mismatch in played.mismatches]
        seed += 1
    return total

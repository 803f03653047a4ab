"""Random steps, and the record of those after which an editor did not show what it should."""

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.support.replay.recording import Item, Recording

Action = Callable[[], None]


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


class Replay(ABC):
    """Edits in one file of a running editor."""

    def __init__(self, recording: Recording, seed: int) -> None:
        self.counts = Counts()
        self.steps: list[str] = []  # so far, in words
        self.rng = random.Random(seed)
        self._recording = recording
        self._shown: Item | None = None  # the suggestion that is shown, if the recording knows it

    @abstractmethod
    def list_actions(self) -> Sequence[tuple[float, Action]]:
        """Returns the possible steps and their weights. Each raises AssertionError if something does not agree."""

    def _find_rest(self) -> str:
        """Returns what is left of the suggestion that is shown."""
        ask = self._recording.last
        if self._shown is None or ask is None:
            return ""
        return (self._shown.before + self._shown.text)[ask.cursor :]


def run_steps(replay: Replay, num_steps: int) -> Outcome:
    """Takes random steps up to the first mismatch."""
    weights, actions = zip(*replay.list_actions(), strict=True)
    outcome = Outcome(replay.counts)
    for _ in range(num_steps):
        replay.counts.steps += 1
        try:
            replay.rng.choices(actions, weights)[0]()
        except AssertionError as error:
            outcome.mismatches.append(f"{error}\nafter the steps {replay.steps!r}")
            break
    return outcome


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

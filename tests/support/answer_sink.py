"""A sink for one answer of the character-level model."""

import threading
import time
from collections.abc import Callable

from inference.errors import MidtokenError
from inference.protocol.characters import CharacterAnswer


class AnswerSink:
    """Records how its request ended."""

    def __init__(self) -> None:
        self.answers: list[CharacterAnswer] = []
        self.errors: list[tuple[type[MidtokenError], str]] = []
        self.cancelled = False
        self.raises_on_send = False
        self._ended = threading.Event()

    def send(self, answer: CharacterAnswer) -> None:
        if self.raises_on_send:
            raise ValueError
        self.answers.append(answer)
        self._ended.set()

    def fail(self, error: MidtokenError) -> None:
        self.errors.append((type(error), str(error)))
        self._ended.set()

    def is_cancelled(self) -> bool:
        return self.cancelled

    def wait(self) -> "AnswerSink":
        """Waits until the request has ended. Returns itself."""
        assert self._ended.wait(30), "the request never ended"
        return self

    @property
    def error(self) -> str:
        """The text of the one error."""
        [(_, text)] = self.wait().errors
        return text


def wait_until_soon(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)

"""A scripted character-level model, for the real service and the real model of the repository."""

import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import numpy.typing as npt

from inference.characters.model import CharacterModel
from inference.characters.service import CharacterService
from inference.characters.token_string import PassWatch
from inference.errors import InvalidRequestError
from inference.protocol.characters import END

_TOKENS = (b"He", b"llo", b"l", b"\xc3")


class ScriptedCharacterModel:
    """A model of bytes: each byte is repeated with probability 3/4, else the text ends. The first byte is `a`.

    The context controls it: `slow` takes a second, `endless` makes forward passes until the watch ends it, `refuse` and
    `raise` fail. NUL is impossible. There are two members.
    """

    def __init__(self, log: Path | None = None, watch: PassWatch = nullcontext) -> None:
        self.events: list[str] = []  # calls of `open` and `advance`; also written to the log, if there is one
        self._log = log
        self._watch = watch

    def note(self, event: str) -> None:
        """Records an event."""
        self.events.append(event)
        if self._log is not None:
            with self._log.open("a") as log:
                log.write(event + "\n")

    def check_spelled(self, text: bytes) -> None:
        """It knows all bytes."""

    def open(self, context: bytes, settings: object) -> "ScriptedState":
        """Opens a state, or does what the context says."""
        self.note(f"open {context!r}")
        if context == b"refuse":
            raise InvalidRequestError("the context is refused by the script")
        if context.startswith(b"raise"):
            raise RuntimeError(f"{context!r} {settings}")
        if context == b"slow":
            time.sleep(1)
        while context == b"endless":
            with self._watch():
                time.sleep(0.005)
        return ScriptedState(self, context)

    def compute_surprisals(self, text: bytes, context: bytes, settings: object) -> npt.NDArray[np.float64]:
        """Returns `byte % 8` bits for each byte, infinity for NUL, and NaN for bytes after a NUL."""
        self.open(context, settings)
        return np.array(
            [np.nan if 0 in text[:index] else np.inf if byte == 0 else byte % 8 for index, byte in enumerate(text)]
        )

    def sample(self, state: "ScriptedState", rng: np.random.Generator | None, max_bytes: int) -> bytes:
        """Returns letters that the generator draws; without one, the text so far, reversed."""
        if rng is None:
            return state.text[::-1][:max_bytes]
        return state.text + rng.integers(97, 123, max_bytes).astype(np.uint8).tobytes()

    def spell(self, token_id: int) -> bytes:
        """Returns the bytes of the token."""
        return _TOKENS[token_id]


def build_scripted_service(model: ScriptedCharacterModel, max_bytes: int = 10_000) -> CharacterService:
    """Returns the real service with a scripted model."""
    return CharacterService(cast(CharacterModel, model), max_bytes)


class ScriptedState:
    """The state of the scripted model after a text: one bit for each byte that it was advanced by, two for the end."""

    def __init__(self, model: ScriptedCharacterModel, text: bytes, num_bits: float = 0.0) -> None:
        self.text, self._num_bits = text, num_bits
        self._model = model
        self.log_probability = self.log_mass = num_bits * np.log(0.5)
        self.log_probability_with_end = self.log_probability + np.log(0.25)

    @property
    def nbytes(self) -> int:
        return 100

    def advance(self, data: bytes) -> "ScriptedState":
        self._model.note(f"advance {data!r}")
        num_bits = self._num_bits + (np.inf if b"\0" in data else len(data))  # NUL is impossible
        return ScriptedState(self._model, self.text + data, num_bits)

    @property
    def next_log_probs(self) -> npt.NDArray[np.float64]:
        log_probs = np.full(257, -np.inf)
        log_probs[self.text[-1] if self.text else ord("a")] = np.log(0.75)
        log_probs[END] = np.log(0.25)
        return log_probs

    def find_members(self, limit: int) -> list[SimpleNamespace]:
        members = [((0, 1), 1, 0.75), ((0, 2, 3), 0, 0.25)]
        return [SimpleNamespace(token_ids=a, num_bytes_ahead=b, probability=c) for a, b, c in members[:limit]]

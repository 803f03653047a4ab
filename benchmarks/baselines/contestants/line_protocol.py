"""One JSON line for each request on a contestant's standard input, one for each answer on its standard output.

A contestant prints an empty line when it is ready, and ends when its standard input ends. Times are taken inside it,
from the moment at which the request has been read, so they do not contain this protocol.

Everybody generates the line at the cursor: up to the first line break, the model's end token or the limit of tokens.
"""

import argparse
import codecs
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Protocol, Self

_LOG_TAIL_CHARS = 3000
_NUM_PASSES = 8
_EDGE = re.compile("(?<=[A-Za-z]) (?=[A-Za-z])")


@dataclass(frozen=True, slots=True)
class Request:
    """The text before the cursor, and how much may be generated."""

    text: str
    max_tokens: int = 64


@dataclass(frozen=True, slots=True)
class Answer:
    """The rest of the line, without its line break, and when it came."""

    line: str
    first_text_ms: float  # until the first character after the cursor; line_ms if there is none
    line_ms: float  # until the line is known to be complete


class Line:
    """Takes the text after the cursor as it is generated, and the times at which it comes."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = ""
        self._first_at: float | None = None
        self._complete_at: float | None = None
        self._started_at = clock()

    def send(self, text: str) -> bool:
        """Adds generated text. Returns whether the line is complete, so that nothing more is wanted."""
        self._text += text
        if self._first_at is None and self._text:
            self._first_at = self._clock()
        if self._complete_at is None and "\n" in self._text:
            self._complete_at = self._clock()
        return self._complete_at is not None

    def send_bytes(self, generated: bytes) -> bool:
        """As `send`, for bytes that may end inside a character."""
        return self.send(self._decoder.decode(generated))

    def finish(self) -> Answer:
        """The answer. If no line break was sent, the line is complete now."""
        complete_at = self._clock() if self._complete_at is None else self._complete_at
        first_at = complete_at if self._first_at is None else self._first_at
        line = self._text.partition("\n")[0]
        return Answer(line, 1e3 * (first_at - self._started_at), 1e3 * (complete_at - self._started_at))


Complete = Callable[[Request, Line], None]


def parse_arguments(description: str | None, *flags: str) -> argparse.Namespace:
    """The model, the number of threads, and what else the command line of a contestant names."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--graph-dir", type=Path)
    for flag in flags:
        parser.add_argument(flag, action="store_true")
    return parser.parse_args()


def serve(load: Callable[[], Complete]) -> None:
    """Loads a contestant and answers requests until the standard input ends."""
    serve_json(lambda: partial(_answer, load()))


def _answer(complete: Complete, received: dict[str, Any]) -> object:
    line = Line()
    complete(Request(**received), line)
    return asdict(line.finish())


def serve_json(load: Callable[[], Callable[[Any], object]]) -> None:
    """The same for any JSON values. What libraries print goes to the standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    answer = load()
    print(file=answers, flush=True)
    for received in sys.stdin:
        print(json.dumps(answer(json.loads(received))), file=answers, flush=True)


class Passes(Protocol):
    """A model with one sequence."""

    def read(self, token_ids: list[int]) -> None: ...  # forgets what was read before; computes the last logits
    def cut(self, num_tokens: int) -> None: ...
    def forward(self, token_ids: list[int]) -> None: ...  # computes the logits of all rows, and keeps none


def serve_passes(load: Callable[[], Passes], num_tokens: int = 8000) -> None:
    """Loads a model, and answers how many milliseconds its passes take. `num_tokens`: ids below it are drawn.

    {"read": 1000, "keep": 500}   forgets everything, reads so many tokens, and forgets those after the first 500
    {"rows": 5}                   forwards a token, or a tree of so many, several times, and keeps none of them: median
    """
    serve_json(lambda: partial(_time_passes, load(), Random(0), range(num_tokens)))


def _time_passes(passes: Passes, random: Random, all_ids: Sequence[int], asked: dict[str, Any]) -> float:
    if "rows" in asked:
        rows = [random.choices(all_ids, k=asked["rows"]) for _ in range(_NUM_PASSES)]
        return statistics.median(_measure_ms(passes.forward, each) for each in rows)
    took_ms = _measure_ms(passes.read, random.choices(all_ids, k=asked["read"]))
    passes.cut(asked["keep"])
    return took_ms


def _measure_ms(run: Callable[[list[int]], None], token_ids: list[int]) -> float:
    started_at = time.perf_counter()
    run(token_ids)
    return 1e3 * (time.perf_counter() - started_at)


class Contestant:
    """A contestant's process. Its standard error goes to `log`."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        """Starts the process and waits until it is ready. Raises RuntimeError if it fails."""
        self.name = name
        self._log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
                env={**os.environ, **environment},
            )  # fmt: skip
        self._read()

    def complete(self, request: Request) -> Answer:
        """Raises RuntimeError if the contestant fails."""
        return Answer(**self.ask(asdict(request)))

    def ask(self, message: object) -> Any:
        """The answer to a JSON value. Raises RuntimeError if the contestant fails."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # then there is no answer either
            print(json.dumps(message), file=self._process.stdin, flush=True)
        return json.loads(self._read())

    def close(self) -> None:
        """Ends the process and waits for it."""
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.close()
            raise RuntimeError(f"{self.name} has ended:\n{self._log.read_text()[-_LOG_TAIL_CHARS:]}")
        return line


Encode = Callable[[str], list[int]]


class KeptTokens:
    """Keeps the token ids up to the last blank between two letters.

    With the tokenizers here, a token may begin there, but none goes beyond it.
    """

    def __init__(self, encode: Encode) -> None:
        self._encode = encode
        self._head = ""
        self._head_ids: list[int] = []

    def encode(self, text: str) -> list[int]:
        """The ids of the whole text, as `encode` gives them."""
        if not (text.startswith(self._head) and _EDGE.match(text, len(self._head))):
            self._head, self._head_ids = "", []
        end = max((found.start() for found in _EDGE.finditer(text, len(self._head))), default=0)
        if end > len(self._head):
            self._head_ids = self._head_ids + self._encode(text[len(self._head) : end])
            self._head = text[:end]
        return self._head_ids + self._encode(text[len(self._head) :])


def count_common(first: Sequence[int], second: Sequence[int]) -> int:
    """How many ids both begin with."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(first), len(second)))

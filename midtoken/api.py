"""The library: a model that completes text at any cursor, predicts the next byte, and finds how surprising a text is.

`midtoken` has these names itself, and no other module is for other programs:

    import midtoken

    with midtoken.load() as model:
        completion = model.complete("def greet(name):\\n    retu")
        print(completion.text, completion.probability)
"""

import asyncio
import codecs
import logging
import math
import os
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from inference.config import AUTO_DEVICE, AUTO_DTYPE, EngineConfig
from inference.errors import InvalidRequestError, ServerError
from inference.errors import MidtokenError as MidtokenError
from inference.likely_text import LikelyText
from inference.protocol.characters import Ask, CharacterAnswer, CharacterRequest, NextByte, Surprisals
from inference.protocol.completion import (
    CompletionChunk,
    CompletionRequest,
    CompletionStats,
    Explanation,
    Extent,
    FinishReason,
    Healing,
)
from midtoken.installed import find_bundled_model, require_packages
from midtoken.models import ensure_model_folder, fetch_model, find_cache_dir

if TYPE_CHECKING:
    from inference.characters.service import CharacterService

_log = logging.getLogger(__name__)

# The slowest covering takes some seconds for a piece. Each request reads the context of its piece again.
_PIECE_BYTES = 1024  # of a text, in one request
_CONTEXT_BYTES = 64 * 1024  # more than fits into the window of the bundled model
_CONTINUATION = bytes(range(0x80, 0xC0))  # what a character in UTF-8 does not begin with
_Kind = TypeVar("_Kind", NextByte, Surprisals)
_Choice = TypeVar("_Choice", Extent, Healing)


@dataclass(frozen=True, slots=True)
class Token:
    """A token of a completion."""

    text: str
    probability: float  # given the text before it; of the first one, given that the text goes on from the typed bytes


@dataclass(frozen=True, slots=True, repr=False)
class Completion:
    """A completion that has ended."""

    last: CompletionChunk  # with the statistics
    likely: LikelyText = field(default_factory=LikelyText)

    @classmethod
    def from_chunks(cls, chunks: Iterable[CompletionChunk]) -> Self:
        """Builds it from all chunks of an answer."""
        received, likely = list(chunks), LikelyText()
        for chunk in received:
            likely.add(chunk)
        return cls(received[-1], likely)

    def __repr__(self) -> str:
        return f"Completion(text={self.text!r}, probability={self.probability:.3g})"

    @property
    def text(self) -> str:
        """What follows the cursor."""
        return self.likely.text

    @property
    def tokens(self) -> tuple[Token, ...]:
        """The tokens, without what they spell before the cursor; none if a server reports no probabilities."""
        return tuple(Token(each.text, math.exp(each.log_prob)) for each in self.likely.read_tokens())

    @property
    def probability(self) -> float:
        """The probability of the whole text, given the text before the cursor: the product of its tokens'."""
        return math.prod(token.probability for token in self.tokens)

    def cut(self, confidence: float) -> str:
        """Returns the beginning that is at least so probable, as an editor shows it: up to the end of a word."""
        return self.text[: self.likely.count_likely(0, confidence)]

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why the text ends there."""
        return self.last.finish_reason

    @property
    def stats(self) -> CompletionStats:
        """What it has cost."""
        return self.last.stats or CompletionStats()

    @property
    def explanation(self) -> Explanation:
        """What healing did, if the request has asked for it. Raises ServerError."""
        if self.last.explanation is None:
            raise ServerError("the server sent no explanation; it may be another version of midtoken")
        return self.last.explanation


async def read_completion(chunks: AsyncGenerator[CompletionChunk, None]) -> Completion:
    """Returns the whole answer. Cancelling the call frees the sequence on the server. Raises MidtokenError."""
    async with aclosing(chunks) as stream:
        return Completion.from_chunks([chunk async for chunk in stream])


class Backend(Protocol):
    """What answers the requests to a `Model`. The calls raise MidtokenError."""

    def complete(self, request: CompletionRequest) -> Completion:
        """Answers a request for one candidate."""

    def ask(self, request: CharacterRequest) -> CharacterAnswer:
        """Answers a request to the character-level model."""

    def close(self) -> None:
        """Frees what it holds."""


class Model:
    """A model, for one thread at a time. `load` returns one. A `with` block closes it at its end.

    Its calls raise MidtokenError, whose message says what to do.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def complete(
        self,
        prefix: str,
        suffix: str = "",
        strategy: str = "exact",
        *,
        max_tokens: int = 64,
        extent: str = "auto",
        stop: Sequence[str] = (),
        temperature: float = 0.0,
        seed: int | None = None,
        min_probability: float = 0.0,
    ) -> Completion:
        """Completes the text between `prefix` and `suffix`, from any place inside a token on.

        `strategy`: "exact" scores all tokenizations of the healed bytes. For comparison, "greedy" masks each token,
        "single" removes one token, and "none" heals nothing. `extent`: how far the text may go: "single_line", "block",
        "unlimited" (until the model ends it) or "auto", a block if the cursor opens one, otherwise a line. `stop`: ends
        the text where one of them would begin. `temperature`: 0 takes the most probable token each time; above it, text
        is sampled. `min_probability`: a text that is less probable ends. Raises InvalidRequestError for a value out
        of range.
        """
        request = CompletionRequest(
            prefix,
            suffix,
            max_tokens=max_tokens,
            healing=_choose(Healing, "strategy", strategy),
            extent=_choose(Extent, "extent", extent),
            stop=tuple(stop),
            temperature=temperature,
            seed=seed,
            min_probability=min_probability,
        )
        return self._backend.complete(request)

    def next_bytes(self, text: str | bytes, num_members: int = 0) -> NextByte:
        """Finds the distribution of the byte after a text, which may end inside a character.

        `num_members`: how many of the most probable tokenizations of the text are returned with it.
        """
        data = _encode(text)
        tail = _take_end(data, _PIECE_BYTES)
        context = _take_end(data[: len(data) - len(tail)], _CONTEXT_BYTES)
        return self._ask(CharacterRequest(tail, context, num_members=num_members), NextByte)

    def surprisal(self, text: str | bytes) -> tuple[float, ...]:
        """Finds the surprisal of each byte of a text in UTF-8, given those before it, in bits."""
        bits: list[float] = []
        for piece in split_pieces(_encode(text)):
            found = self._ask(piece, Surprisals).surprisals
            if len(found) != len(piece.text):  # something was redacted in a piece, but not in the whole text
                raise ServerError("the text was changed before it was sent, so its bytes have no surprisals")
            bits += found
        return tuple(bits)

    def close(self) -> None:
        """Frees the model."""
        self._backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, request: CharacterRequest, kind: type[_Kind]) -> _Kind:
        answer = self._backend.ask(request)
        if not isinstance(answer, kind):
            raise ServerError("the server answered a request of another kind; it may be another version of midtoken")
        return answer


def _choose(kind: type[_Choice], name: str, value: str) -> _Choice:
    if value not in set(kind):
        raise InvalidRequestError(f"{name} must be one of {', '.join(kind)}, not {value!r}")
    return kind(value)


def _encode(text: str | bytes) -> bytes:
    return os.fsencode(text) if isinstance(text, str) else text


def split_pieces(text: bytes, num_bytes: int = _PIECE_BYTES) -> Iterator[CharacterRequest]:
    """Yields requests about the pieces of a text in order, each with the text before it.

    No piece is empty. No piece ends inside a character, unless the text is not UTF-8.
    """
    start = 0
    while start < len(text):
        piece, decoder = text[start : start + num_bytes], codecs.getincrementaldecoder("utf-8")("replace")
        decoder.decode(piece)
        end = start + (len(piece) - len(decoder.getstate()[0]) or len(piece))
        yield CharacterRequest(text[start:end], _take_end(text[:start], _CONTEXT_BYTES), Ask.SURPRISAL)
        start = end


def _take_end(text: bytes, num_bytes: int) -> bytes:
    return text[-num_bytes:].lstrip(_CONTINUATION) if len(text) > num_bytes else text


def load(
    model: str | Path | None = None,
    *,
    device: str = AUTO_DEVICE,
    dtype: str = AUTO_DTYPE,
    num_threads: int | None = None,
    max_context_tokens: int | None = None,
    graph_dir: Path | None = None,
) -> Model:
    """Loads a model into this process. A model of a hub is downloaded first, if it is not on this machine.

    `model`: a folder, a GGUF file, or a name as `--model` takes it, such as "Qwen/Qwen2.5-Coder-0.5B"; None: the
    bundled one. `device`, `dtype`, `num_threads` and `max_context_tokens` are the options --device, --dtype, --threads
    and --context of the command. `graph_dir`: where converted weights are kept; None: in the user's cache.

    Raises ModelError if the model cannot be used, and LaunchError if a package is missing or a download fails.
    """
    require_packages("local", "a model cannot be loaded without")
    name = str(model.absolute()) if isinstance(model, Path) else model
    with ThreadPoolExecutor(1) as thread:  # the caller's may have an event loop that runs
        thread.submit(asyncio.run, fetch_model(name, partial(_log.info, "%s (%d %%)"))).result()
    config = EngineConfig(
        find_bundled_model() if name is None else ensure_model_folder(name),
        device=device,
        dtype=dtype,
        num_threads=num_threads,
        max_context_tokens=max_context_tokens,
        graph_dir=graph_dir or find_cache_dir(),
    )
    return Model(_Loaded(config))


class _Loaded:
    """A model in this process. For the first question about bytes it is loaded a second time, in float32."""

    def __init__(self, config: EngineConfig) -> None:
        # Here, because commands use a server, and need no runner.
        from inference.engine.local_executor import load_engine

        self._config, self._engine = config, load_engine(config)
        self._characters: CharacterService | None = None

    def complete(self, request: CompletionRequest) -> Completion:
        from inference.engine.job import ChunkBuffer

        self._engine.submit(request, sink := ChunkBuffer())
        sink.wait()
        return Completion.from_chunks(sink.chunks)

    def ask(self, request: CharacterRequest) -> CharacterAnswer:
        if self._characters is None:
            from inference.characters.service import CharacterService, load_character_model

            self._characters = CharacterService(load_character_model(self._config), self._config.memory_mib * 2**20)
        return self._characters.answer(request)

    def close(self) -> None:
        self._engine.close()

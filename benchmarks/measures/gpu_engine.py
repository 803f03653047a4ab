"""What `benchmarks.engine_gpu` measures: engines with random weights in this process, and their completions."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import torch

from benchmarks.corpora.grown_model import Shape
from benchmarks.corpora.random_models import SHAPES, load_random_model, prepare_tokenizer
from inference.config import EngineConfig
from inference.engine.assembly import build_engine
from inference.engine.engine import Engine
from inference.engine.sink import CompletionEngine
from inference.healing.heal_point import encode_text
from inference.model.language_model import LoadedModel
from inference.model.pytorch.runner import TorchModel
from inference.protocol.completion import (
    Chunks,
    CompletionChunk,
    CompletionRequest,
    CompletionStats,
    Extent,
    FinishReason,
)
from tests.support.sinks import CollectingSink

DEFAULT_MODEL = Path("models/default")

# A name that nobody has chosen, so that no completion guesses its next letter.
_TYPED = "value = zqxj_wvkf_pyrg_hmbd_ctnl_uosx_ieav_qzjw_gkxy_rvpo"
_FIRST_KEY = len("value = z")

_PACKAGES = ("inference", "lsp_server", "midtoken", "trie_cache")  # whose source is the text
_CHARS_PER_TOKEN = 6  # more than texts have
_SHIFT = 4_999  # characters between the beginnings of two texts


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    num_context: int = 2048  # tokens before the cursor
    num_tokens: int = 20  # of a completion
    num_keys: int = 40
    num_sequences: int = 64  # completed at once
    num_batch_tokens: int = 64  # of each of these completions
    num_repeats: int = 30
    num_right_cuts: int = 50
    num_copy_bytes: int = 4 * 2**30
    vocab_rows: int = 151_936  # of the rows from which the sampler chooses


@dataclass(frozen=True, slots=True)
class Setting:
    """The device, and what is measured on it."""

    device: str
    tokenizer: Path  # a folder with a tokenizer.json
    sizes: Sizes = Sizes()
    shapes: Mapping[str, Shape] = field(default_factory=lambda: SHAPES, hash=False)

    def synchronize(self) -> None:
        """Returns when the device has done all that it was given."""
        if self.device == "cuda":
            torch.cuda.synchronize()


@cache
def _read_repository() -> str:
    """The source of all packages, one file after the other."""
    root = Path(__file__).parents[2]
    paths = sorted(path for package in _PACKAGES for path in (root / package).rglob("*.py"))
    return "".join(path.read_text(encoding="utf-8") for path in paths)


@dataclass(frozen=True, slots=True)
class RandomEngine:
    """A model with random weights, and an engine for it."""

    setting: Setting
    name: str  # of the shape
    loaded: LoadedModel[TorchModel]
    engine: Engine

    @property
    def shape(self) -> Shape:
        """The shape of its model."""
        return self.setting.shapes[self.name]

    def cut_text(self, num_tokens: int, index: int = 0) -> str:
        """Source text of this repository, of about so many tokens, in whole lines; another one for each `index`."""
        tokenizer, whole = self.loaded.tokenizer, _read_repository()
        num_chars, start = _CHARS_PER_TOKEN * num_tokens, index * _SHIFT % len(whole)
        text = (whole * (2 + num_chars // len(whole)))[start : start + num_chars]
        ids = encode_text(tokenizer.encoder, text)[:num_tokens]
        cut = b"".join(tokenizer.vocabulary.token_bytes[token_id] for token_id in ids).decode(errors="ignore")
        return cut.rpartition("\n")[0] + "\n"


@contextmanager
def random_engine(setting: Setting, name: str) -> Iterator[RandomEngine]:
    """A model of this shape and an engine without drafts, which ends with the context. Raises ModelError."""
    sizes = setting.sizes
    with ExitStack() as owner:
        config = EngineConfig(
            prepare_tokenizer(setting.tokenizer, owner),
            device=setting.device,
            dtype="bfloat16",
            drafts=False,
            fill_in_layout="none",
            max_sequences=sizes.num_sequences,
            max_context_tokens=2 * sizes.num_context,
            cache_tokens=2 * sizes.num_sequences * (sizes.num_context + 256),
            memory_mib=48 * 1024,  # all that was read stays
            max_waiting=2 * sizes.num_sequences,
        )
        loaded = load_random_model(setting.shapes[name], config)
        yield RandomEngine(setting, name, loaded, owner.enter_context(closing(build_engine(config, loaded))))


@dataclass(frozen=True, slots=True)
class Completion:
    """A completion, and how long it took."""

    ms: float
    finish_reason: FinishReason | None
    stats: CompletionStats


class _TimedSink(CollectingSink):
    """Also notes when its last chunk came."""

    ended_at = 0.0

    def send(self, chunk: CompletionChunk) -> None:
        self.ended_at = time.perf_counter()
        super().send(chunk)


def complete_all(engine: CompletionEngine, requests: Sequence[CompletionRequest]) -> list[Completion]:
    """Asks for all at once. Raises the error of a failed request."""
    sinks = [_TimedSink() for _ in requests]
    began_at = time.perf_counter()
    for request, sink in zip(requests, sinks, strict=True):
        engine.submit(request, sink)
    for sink in sinks:
        sink.wait()
    return [Completion(1e3 * (sink.ended_at - began_at), sink.finish_reason, sink.stats) for sink in sinks]


class Document:
    """A document in which somebody types at the end. Its last line has no indentation, so no extent ends a block."""

    def __init__(self, engine: RandomEngine, index: int = 0) -> None:
        self._text = engine.cut_text(engine.setting.sizes.num_context, index)
        self._uri = f"file:///document_{index}.py"
        self._num_typed = _FIRST_KEY

    def type_key(self, max_tokens: int) -> CompletionRequest:
        """The request after the next key, as the language server sends it."""
        text = self._text + _TYPED[: self._num_typed]
        self._num_typed += 1
        if self._num_typed > len(_TYPED):
            self._num_typed = _FIRST_KEY
            self._text += _TYPED + "\n"
        return CompletionRequest(
            text, max_tokens=max_tokens, extent=Extent.BLOCK, chunks=Chunks.LINES, document=self._uri
        )

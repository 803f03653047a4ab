"""On what is measured, how much, and for how long."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.corpora.random_models import SHAPES, TINY, Shape, load_random_model, prepare_tokenizer
from inference.config import EngineConfig
from inference.engine.assembly import build_engine
from inference.engine.engine import Engine
from inference.model.language_model import LoadedModel
from inference.model.pytorch.runner import TorchModel

Figures = dict[str, float | bool | None]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    num_context: int  # tokens before the cursor
    num_tokens: int  # of a completion
    num_keys: int
    num_sequences: int  # completed at once
    num_batch_tokens: int  # of each of these completions
    num_repeats: int
    num_right_prompts: int
    num_right_tokens: int
    num_requests: int  # while memory is watched
    num_marks: int
    num_copy_bytes: int
    matmul_size: int
    vocab_rows: int  # of the rows from which the sampler chooses
    num_long: int  # tokens of the request that has no memory
    num_spare_mib: int  # memory that is left while it is refused


FULL = Sizes(
    num_context=2048,
    num_tokens=20,
    num_keys=40,
    num_sequences=64,
    num_batch_tokens=64,
    num_repeats=30,
    num_right_prompts=50,
    num_right_tokens=20,
    num_requests=10_000,
    num_marks=10,
    num_copy_bytes=4 * 2**30,
    matmul_size=8192,
    vocab_rows=151_936,
    num_long=24_000,
    num_spare_mib=256,
)
SMALL = Sizes(
    num_context=96,
    num_tokens=6,
    num_keys=6,
    num_sequences=4,
    num_batch_tokens=6,
    num_repeats=3,
    num_right_prompts=2,
    num_right_tokens=3,
    num_requests=48,
    num_marks=3,
    num_copy_bytes=2**22,
    matmul_size=128,
    vocab_rows=8_448,
    num_long=16_000,
    num_spare_mib=8,
)


@dataclass(frozen=True, slots=True)
class Setting:
    """The device, and what is measured on it."""

    device: str
    sizes: Sizes
    tokenizer: Path  # a folder with a tokenizer.json
    is_rehearsal: bool = False
    dtype: str = "bfloat16"

    @property
    def is_cuda(self) -> bool:
        """True on a GPU."""
        return self.device.startswith("cuda")

    @property
    def shapes(self) -> dict[str, Shape]:
        """The models that are measured."""
        return TINY if self.is_rehearsal else SHAPES

    def synchronize(self) -> None:
        """Returns when the device has done all that it was given."""
        if self.is_cuda:
            torch.cuda.synchronize()


class Deadline:
    """The end of a part's time. A part measures less often when it comes."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ends_at = clock() + seconds

    @property
    def is_over(self) -> bool:
        """True once the time is over."""
        return self._clock() >= self._ends_at


@dataclass(slots=True)
class RandomEngine:
    """A model with random weights, and an engine for it."""

    setting: Setting
    shape: Shape
    loaded: LoadedModel[TorchModel]
    engine: Engine
    _owner: ExitStack = field(default_factory=ExitStack)

    def close(self) -> None:
        """Stops the engine, and removes its files."""
        self.engine.close()
        self._owner.close()


def load_random_engine(setting: Setting, shape: Shape) -> RandomEngine:
    """Builds a model of this shape and an engine without drafts. Raises ModelError."""
    sizes, owner = setting.sizes, ExitStack()
    room = sizes.num_context + 256
    settings: dict[str, Any] = {
        "max_sequences": sizes.num_sequences,
        "max_context_tokens": max(2 * sizes.num_context, sizes.num_long),
        "cache_tokens": 2 * sizes.num_sequences * room + 2 * sizes.num_long,
        "memory_mib": 48 * 1024,  # all that was read stays
        "max_waiting": 2 * sizes.num_sequences,
    }
    config = EngineConfig(
        prepare_tokenizer(setting.tokenizer, owner),
        device=setting.device,
        dtype=setting.dtype,
        drafts=False,
        fill_in_layout="none",
        **settings,
    )
    loaded = load_random_model(shape, config)
    return RandomEngine(setting, shape, loaded, build_engine(config, loaded), owner)

"""Each runner with the same tiny decoder, for the tests of what the engine asks of every one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

from inference.config import EngineConfig
from inference.model.language_model import LanguageModel
from inference.model.numpy_sampler import NumpySampler
from inference.model.pytorch.loader import load_torch_runner
from inference.model.pytorch.runner import TorchModel
from inference.model.pytorch.sampler import build_sampler
from tests.support.decoder_folders import VOCAB_SIZE, load_folder
from trie_cache.trie import Trie
from trie_cache.vocabulary import Vocabulary

RUNNERS = ("onnx", "torch", "gguf")


@dataclass(frozen=True)
class RunnerCase:
    """A runner, and how exactly it computes."""

    model: LanguageModel
    gap: float  # between its logits and those of transformers
    without_memory: Callable[[], Any]  # a context in which passes fail for want of memory


def load_runner(name: str, folder: Path) -> RunnerCase:
    """The decoder in a folder of `write_decoder`, on the runner of this name."""
    return {"onnx": _load_onnx, "torch": _load_torch, "gguf": _load_gguf}[name](folder)


def _load_onnx(folder: Path) -> RunnerCase:
    model = load_folder(folder)

    class Full:
        def run_with_iobinding(self, _binding: object) -> None:
            raise RuntimeError("[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : std::bad_alloc")

    return RunnerCase(model, 1e-4, lambda: patch.object(model, "_session", Full()))


def _load_torch(folder: Path) -> RunnerCase:
    runner = load_torch_runner(EngineConfig(folder, dtype="float32"))
    vocabulary, trie = _build_vocabulary()
    model = TorchModel(runner, build_sampler(runner.device, runner.dtype, vocabulary, trie))

    @contextmanager
    def without_memory() -> Iterator[None]:
        hook = runner._model.register_forward_hook(_raise_out_of_memory)
        yield
        hook.remove()

    return RunnerCase(model, 1e-3, without_memory)


def _raise_out_of_memory(*_args: object) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory")


def _load_gguf(folder: Path) -> RunnerCase:
    llama_cpp = pytest.importorskip("llama_cpp", reason="make gguf installs it")
    from benchmarks.baselines.gguf_file import Precision, write_gguf
    from inference.model.gguf.kv_cache import CellPool
    from inference.model.gguf.llama import Llama
    from inference.model.gguf.model import GgufModel

    write_gguf(folder, folder / "model.gguf", Precision.F32)
    llama = Llama(folder / "model.gguf", "cpu")
    llama.open_context(2048, 1)
    vocabulary, trie = _build_vocabulary()
    model = GgufModel(CellPool(llama, 2048, 4), NumpySampler(vocabulary, trie))
    decode = llama_cpp.llama_decode

    def fail(*args: Any) -> int:
        decode(*args)  # as when memory ends after some of the rows
        return -2

    return RunnerCase(model, 1e-2, lambda: patch.object(llama_cpp, "llama_decode", fail))


def _build_vocabulary() -> tuple[Vocabulary, Trie]:
    """Every row of the head is a token."""
    vocabulary = Vocabulary.from_tokens({row: row.to_bytes(2) for row in range(VOCAB_SIZE)}, {})
    return vocabulary, Trie.build(vocabulary)

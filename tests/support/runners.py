"""Each runner with the same tiny decoder, for the tests of what the engine asks of every one."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import strategies as st

from inference.config import EngineConfig
from inference.healing.token_tree import TokenTree
from inference.model.language_model import LanguageModel, SequenceCache, SequencePart
from inference.model.pytorch.loader import load_transformers_model
from inference.model.pytorch.model import TorchModel, TorchTokens
from inference.model.sampler import NumpyTokens
from tests.support.decoder_folders import VOCAB_SIZE, DecoderOracle
from tests.support.onnx_folder import load_folder
from trie_cache.trie import Trie, Vocabulary

FindLogits = Callable[[tuple[int, ...]], npt.NDArray[Any]]  # the logits of an oracle after a text
RUNNERS = ("onnx", "torch", "gguf", "gguf with states")


@dataclass(frozen=True)
class RunnerCase:
    """A runner, how exactly it computes, and what it is compared with."""

    model: LanguageModel
    gap: float  # between its logits and those of transformers
    without_memory: Callable[[], Any]  # a context in which passes fail for want of memory
    find_logits: FindLogits  # those of separate texts, by other means


def load_runner(name: str, folder: Path) -> RunnerCase:
    """The decoder in a folder of `write_decoder`, on the runner of this name."""
    loaders = {"onnx": _load_onnx, "torch": _load_torch, "gguf": _load_gguf, "gguf with states": _load_states}
    return loaders[name](folder)


def _load_onnx(folder: Path) -> RunnerCase:
    model = load_folder(folder)

    class Full:
        def run_with_iobinding(self, _binding: object) -> None:
            raise RuntimeError("[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : std::bad_alloc")

    return RunnerCase(model, 1e-4, lambda: patch.object(model, "_session", Full()), DecoderOracle(folder).forward)


def load_torch(folder: Path, dtype: str = "float32") -> TorchModel:
    """A decoder on torch. All rows of its head are tokens."""
    return build_torch(*load_transformers_model(EngineConfig(folder, dtype=dtype)))


def build_torch(built: torch.nn.Module, device: torch.device = torch.device("cpu")) -> TorchModel:  # noqa: B008
    """A model of transformers on a device. All rows of its head are tokens."""
    model = TorchModel(built, device)
    model.tokens = TorchTokens(*_build_vocabulary(model.vocab_size), device)
    return model


def _load_torch(folder: Path) -> RunnerCase:
    model = load_torch(folder)

    @contextmanager
    def without_memory() -> Iterator[None]:
        hook = model._model.register_forward_hook(_raise_out_of_memory)
        yield
        hook.remove()

    return RunnerCase(model, 1e-3, without_memory, DecoderOracle(folder).forward)


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
    model = GgufModel(CellPool(llama, 2048, 4), NumpyTokens(*_build_vocabulary(VOCAB_SIZE)))
    return RunnerCase(model, 1e-2, lambda: failing_after_rows(llama_cpp), DecoderOracle(folder).forward)


def _load_states(folder: Path) -> RunnerCase:
    """A tiny model with DeltaNet and attention, with few states, compared with plain passes over separate texts."""
    llama_cpp = pytest.importorskip("llama_cpp", reason="make gguf installs it")
    from benchmarks.corpora.state_models import write_state_model
    from tests.support.state_models import SeparateTexts, load_states

    write_state_model(folder / "states", "qwen35")
    find_logits = SeparateTexts(folder / "states/model.gguf").forward
    return RunnerCase(load_states(folder / "states"), 5e-2, lambda: failing_after_rows(llama_cpp), find_logits)


@contextmanager
def failing_after_rows(llama_cpp: Any) -> Iterator[None]:
    """Passes fail as when memory ends after some of the rows."""
    decode = llama_cpp.llama_decode

    def fail(*args: Any) -> int:
        decode(*args)
        return -2

    with patch.object(llama_cpp, "llama_decode", fail):
        yield


class CheckedSequence:
    """A sequence of a model, whose logits are compared with those of an oracle, and the tokens that it must have."""

    def __init__(
        self,
        model: LanguageModel,
        compute_logits: FindLogits,
        gap: float,
        cache: SequenceCache | None = None,
        kept: tuple[int, ...] = (),
    ) -> None:
        self.model, self._find_logits, self._gap = model, compute_logits, gap
        self.cache, self.kept = model.new_cache(8) if cache is None else cache, kept

    def fork(self, num_tokens: int | None = None, capacity: int = 0) -> "CheckedSequence":
        cache = self.cache.fork(num_tokens, capacity)
        return CheckedSequence(self.model, self._find_logits, self._gap, cache, self.kept[: cache.num_tokens])

    def cut(self, num_tokens: int) -> None:
        self.cache.cut(num_tokens)
        assert self.cache.num_tokens <= num_tokens
        self.kept = self.kept[: self.cache.num_tokens]

    def find_paths(self, tree: TokenTree) -> list[tuple[int, ...]]:
        """All tokens up to each branch."""
        return [(*self.kept, *tree.chain_ids, *tree.spell_path(node)) for node in range(len(tree.branch_ids))]

    def check(self, part: SequencePart, rows: Sequence[Any]) -> None:
        """The rows are those of the new nodes of a part."""
        paths = self.find_paths(part.tree)[len(part.stored) :]
        if part.tree.chain_ids:
            paths.insert(0, (*self.kept, *part.tree.chain_ids))
        assert len(rows) == part.num_logit_rows == len(paths)
        if rows:
            expected = np.stack([self._find_logits(path) for path in paths])
            np.testing.assert_allclose(np.stack([row.to_host() for row in rows]), expected, atol=self._gap, rtol=0)

    def forward(self, tree: TokenTree) -> None:
        """Forwards a tree, and checks its rows."""
        part = SequencePart(self.cache, tree)
        self.check(part, self.model.forward([part])[0])

    def keep(self, tree: TokenTree, node: int | None = None) -> None:
        """Keeps the chain, and the path to a node."""
        branches = [] if node is None else self.cache.copy_branches(tree)
        self.cache.keep(tree)
        self.cache.append([branches[branch] for branch in tree.find_path(node)])
        self.kept = (*self.kept, *tree.chain_ids, *tree.spell_path(node))
        assert self.cache.num_tokens == len(self.kept) <= self.cache.capacity

    def read(self, *token_ids: int) -> None:
        """Reads further tokens, and checks the logits after them."""
        tree = TokenTree(token_ids)
        self.forward(tree)
        self.keep(tree)

    def skim(self, token_ids: Sequence[int], num_at_once: int = 1000) -> None:
        """Reads further tokens in pieces, without logits."""
        for start in range(0, len(token_ids), num_at_once):
            tree = TokenTree(tuple(token_ids[start : start + num_at_once]))
            assert self.model.forward([SequencePart(self.cache, tree, wants_logits=False)]) == [[]]
            self.keep(tree)


@st.composite
def random_trees(draw: st.DrawFn, num_ids: int, has_chain: bool = True) -> TokenTree:
    """Draws trees of any shape."""
    ids = st.integers(0, num_ids - 1)
    chain = draw(st.lists(ids, min_size=1, max_size=5)) if has_chain else ()
    branches = draw(st.lists(ids, min_size=0 if has_chain else 1, max_size=6))
    parents = tuple(draw(st.sampled_from([None, *range(branch)])) for branch in range(len(branches)))
    return TokenTree(tuple(chain), tuple(branches), parents)


def _build_vocabulary(num_rows: int) -> tuple[Vocabulary, Trie]:
    """Every row of the head is a token."""
    vocabulary = Vocabulary.from_tokens({row: row.to_bytes(2) for row in range(num_rows)}, {})
    return vocabulary, Trie.build(vocabulary)

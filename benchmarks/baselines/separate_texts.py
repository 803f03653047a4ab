"""llama.cpp without any reuse: each text is read alone, from its first token, in a sequence that is cleared before."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import llama_cpp
import numpy as np
import numpy.typing as npt

from inference.healing.token_tree import TokenTree
from inference.model.language_model import LanguageModel, SequenceInput
from inference.model.sampler import NumpyRow, NumpyTokens

_MAX_TOKENS = 4096


class SeparateTexts:
    """The logits after texts."""

    def __init__(self, path: Path) -> None:
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
        options = llama_cpp.llama_context_default_params()
        options.n_ctx, options.n_threads, options.n_threads_batch = _MAX_TOKENS, 1, 1
        self._context = llama_cpp.llama_init_from_model(self._model, options)
        self.num_rows: int = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))

    def forward(self, token_ids: Sequence[int]) -> npt.NDArray[np.float32]:
        """The logits after the text."""
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self._context), False)
        ids = (llama_cpp.llama_token * len(token_ids))(*token_ids)
        if llama_cpp.llama_decode(self._context, llama_cpp.llama_batch_get_one(ids, len(ids))):
            raise RuntimeError("llama_decode has failed")
        logits = llama_cpp.llama_get_logits_ith(self._context, -1)
        return np.ctypeslib.as_array(logits, (self.num_rows,)).copy()


class _Tokens:
    """A `SequenceCache` with nothing but the tokens."""

    nbytes = 0
    capacity = _MAX_TOKENS

    def __init__(self, token_ids: tuple[int, ...] = ()) -> None:
        self.token_ids = token_ids

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    def reserve(self, num_new: int) -> None: ...

    def keep(self, tree: TokenTree) -> None:
        self.token_ids += tree.chain_ids

    def copy_branches(self, tree: TokenTree) -> list[None]:
        return [None] * len(tree.branch_ids)

    def copy_tokens(self, start: int) -> list[None]:
        return [None] * (self.num_tokens - start)

    def append(self, rows: Sequence[Any]) -> None:
        assert not rows, "nothing is stored"

    def cut(self, num_tokens: int) -> None:
        self.token_ids = self.token_ids[:num_tokens]

    def fork(self, num_tokens: int | None = None, capacity: int = 0) -> Self:  # noqa: ARG002  # of the interface
        return type(self)(self.token_ids[:num_tokens])


class SeparateTextsModel(LanguageModel):
    """A `LanguageModel` that computes each row from nothing."""

    max_tokens = _MAX_TOKENS
    runs_together = False
    row_cost = math.inf

    def __init__(self, texts: SeparateTexts, tokens: NumpyTokens) -> None:
        self._texts, self._tokens = texts, tokens

    def new_cache(self, num_tokens: int = 0) -> _Tokens:  # noqa: ARG002  # of the interface
        return _Tokens()

    def forward(self, parts: Sequence[SequenceInput]) -> list[list[NumpyRow]]:
        return [self._forward(part) if part.wants_logits else [] for part in parts]

    def _forward(self, part: SequenceInput) -> list[NumpyRow]:
        assert isinstance(part.cache, _Tokens), "every cache comes from new_cache"
        tree, before = part.tree, part.cache.token_ids + part.tree.chain_ids
        nodes = [*([None] if tree.chain_ids else []), *range(len(tree.branch_ids))]
        logits = [self._texts.forward(before + tree.spell_path(node)) for node in nodes]
        return self._tokens.build_rows(np.stack(logits))

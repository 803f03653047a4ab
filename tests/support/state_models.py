"""The runner with models that have a recurrent state, and llama.cpp without any reuse, which says what is right."""

from collections.abc import Sequence
from pathlib import Path

import llama_cpp
import numpy as np
import numpy.typing as npt

from inference.model.gguf.llama import Llama
from inference.model.gguf.model import GgufModel
from inference.model.gguf.recurrent_cache import StatePool
from inference.model.sampler import NumpyTokens
from trie_cache.trie import Trie, Vocabulary

_NUM_CELLS = 4096


def load_states(folder: Path, num_states: int = 24) -> GgufModel:
    """The model in a folder of `write_state_model`, with so many states. Each row of the head is a token."""
    llama = Llama(folder / "model.gguf", "cpu")
    llama.open_context(_NUM_CELLS, 1, num_states)
    vocabulary = Vocabulary.from_tokens({row: row.to_bytes(2) for row in range(llama.vocab_size)}, {})
    pool = StatePool(llama, _NUM_CELLS, 4, num_states=num_states)
    return GgufModel(pool, NumpyTokens(vocabulary, Trie.build(vocabulary)))


class SeparateTexts:
    """The logits after texts, each of which is read alone, from its first token."""

    def __init__(self, path: Path) -> None:
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
        options = llama_cpp.llama_context_default_params()
        options.n_ctx, options.n_threads, options.n_threads_batch = _NUM_CELLS, 1, 1
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

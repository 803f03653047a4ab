"""llama.cpp beside the engine, in the same process: the loop that its own programs have."""

import time
from collections.abc import Sequence
from pathlib import Path

import llama_cpp
import numpy as np
import numpy.typing as npt

from benchmarks.baselines.contestants.line_protocol import KeptTokens, count_common
from inference.healing.heal_point import encode_text, find_heal_point
from inference.healing.loaded_tokenizer import LoadedTokenizer, load_tokenizer


class PlainLoop:
    """llama.cpp as its own programs use it: one sequence, of which the common beginning is kept, token by token."""

    def __init__(self, folder: Path, num_threads: int) -> None:
        path = str(folder / "model.gguf").encode()
        self._model = llama_cpp.llama_model_load_from_file(path, llama_cpp.llama_model_default_params())
        options = llama_cpp.llama_context_default_params()
        options.n_ctx = options.n_batch = 2048
        options.n_threads = options.n_threads_batch = num_threads
        self._context = llama_cpp.llama_init_from_model(self._model, options)
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._tokenizer: LoadedTokenizer = load_tokenizer(folder)
        self._tokens = KeptTokens(lambda text: list(encode_text(self._tokenizer.encoder, text)))
        self._ids: list[int] = []

    def measure_first_ms(self, prefix: str) -> float:
        """Until the first token after the canonical tokens of the text is known."""
        started_at = time.perf_counter()
        self.forward(self._tokens.encode(prefix)).argmax()
        return 1e3 * (time.perf_counter() - started_at)

    def measure_line_ms(self, prefix: str, rest: str) -> float:
        """For the tokens of a line and its end, after those that healing keeps."""
        encoder = self._tokenizer.encoder
        num_kept = len(find_heal_point(encoder, prefix).kept_ids)
        token_ids = list(encode_text(encoder, prefix + rest))
        if len(self._ids) != num_kept - 1:
            self.forward(token_ids[: num_kept - 1])
        started_at = time.perf_counter()
        for count in range(num_kept, len(token_ids) + 1):
            self.forward(token_ids[:count]).argmax()
        return 1e3 * (time.perf_counter() - started_at)

    def forward(self, token_ids: Sequence[int]) -> npt.NDArray[np.float32]:
        """Forwards what is new, and the last token in any case. Returns the logits after it, until the next call."""
        num_common = min(count_common(self._ids, list(token_ids)), len(token_ids) - 1)
        if not llama_cpp.llama_memory_seq_rm(self._memory, 0, num_common, -1):
            raise RuntimeError("a state cannot be cut back")
        new = (llama_cpp.llama_token * (len(token_ids) - num_common))(*token_ids[num_common:])
        if llama_cpp.llama_decode(self._context, llama_cpp.llama_batch_get_one(new, len(new))):
            raise RuntimeError("llama_decode has failed")
        self._ids = list(token_ids)
        logits = llama_cpp.llama_get_logits_ith(self._context, -1)
        num_tokens = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))
        return np.ctypeslib.as_array(logits, (num_tokens,))

    def close(self) -> None:
        """Frees the model."""
        llama_cpp.llama_free(self._context)
        llama_cpp.llama_model_free(self._model)

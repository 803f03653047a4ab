"""Passes of llama.cpp, through the C interface of llama-cpp-python.

    python -m benchmarks.baselines.contestants.llama_cpp_passes MODEL.gguf --threads N

Several rows are a chain, whose logits are all computed. A tree, which sequence ids can express, takes more time.
"""

import llama_cpp

from benchmarks.baselines.contestants.line_protocol import parse_arguments
from benchmarks.baselines.contestants.passes import Passes, serve_passes

_NUM_CONTEXT_TOKENS = 2048


def main() -> None:
    options = parse_arguments(__doc__)
    serve_passes(lambda: _LlamaPasses(str(options.model), options.threads))


class _LlamaPasses(Passes):
    def __init__(self, gguf: str, num_threads: int) -> None:
        self._llama = llama_cpp.Llama(
            gguf, n_ctx=_NUM_CONTEXT_TOKENS, n_batch=_NUM_CONTEXT_TOKENS, n_threads=num_threads,
            n_threads_batch=num_threads, verbose=False,
        )  # fmt: skip
        self._context = self._llama._ctx.ctx
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._batch = llama_cpp.llama_batch_init(_NUM_CONTEXT_TOKENS, 0, 1)
        self._num_kept = 0

    def read(self, token_ids: list[int]) -> None:
        self.cut(0)
        self._decode(token_ids, first_wanted=len(token_ids) - 1)
        self._num_kept = len(token_ids)

    def cut(self, num_tokens: int) -> None:
        llama_cpp.llama_memory_seq_rm(self._memory, 0, num_tokens, -1)
        self._num_kept = num_tokens

    def forward(self, token_ids: list[int]) -> None:
        self._decode(token_ids, first_wanted=0)
        self.cut(self._num_kept)

    def _decode(self, token_ids: list[int], first_wanted: int) -> None:
        batch = self._batch
        batch.n_tokens = len(token_ids)
        for index, token_id in enumerate(token_ids):
            batch.token[index] = token_id
            batch.pos[index] = self._num_kept + index
            batch.n_seq_id[index], batch.seq_id[index][0] = 1, 0
            batch.logits[index] = index >= first_wanted
        if llama_cpp.llama_decode(self._context, batch):
            raise RuntimeError("llama_decode has failed")
        llama_cpp.llama_get_logits_ith(self._context, -1)  # waits until they are there


if __name__ == "__main__":
    main()

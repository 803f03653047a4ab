"""A model on llama.cpp: token trees in, next-token logits out, and the choice among them.

All sequences of a step are one pass. What a row gets depends on its neighbours there in the last bits, as llama.cpp
computes products of one row and of several in different ways.
"""

from collections.abc import Sequence

from inference.errors import InvalidRequestError
from inference.model.gguf.kv_cache import CellPool, GgufSequenceCache
from inference.model.gguf.llama import BatchSpan
from inference.model.language_model import SequenceInput
from inference.model.numpy_sampler import NumpyModel, NumpyRow, NumpySampler
from inference.model.path_log_probs import check_numbers


class GgufModel(NumpyModel):
    """A `LanguageModel` on llama.cpp. One thread at a time may use it."""

    runs_together = True
    row_cost = 0.0  # until it is measured

    def __init__(self, pool: CellPool, sampler: NumpySampler) -> None:
        super().__init__(sampler)
        self._pool = pool
        self.max_tokens = pool.llama.max_tokens

    def new_cache(self, num_tokens: int = 256) -> GgufSequenceCache:
        """An empty cache with room for `num_tokens`. Raises OverloadedError."""
        return GgufSequenceCache(self._pool, num_tokens)

    def forward(self, parts: Sequence[SequenceInput]) -> list[list[NumpyRow]]:
        """Forwards all parts in one pass. Returns the rows of each part that wants them.

        Raises OverloadedError or ModelError; the kept tokens of the caches are then unchanged.
        """
        llama = self._pool.llama
        begun: list[GgufSequenceCache] = []
        segments: list[BatchSpan] = []
        try:
            for part in parts:
                assert isinstance(part.cache, GgufSequenceCache), "every cache comes from new_cache"
                part.cache.reserve(part.tree.num_rows)
                begun.append(part.cache)
                segments += part.cache.build_segments(part)
            self._check_positions(segments)
            rows = [row for logits in llama.decode(segments) for row in self._sampler.build_rows(check_numbers(logits))]
        except BaseException:
            for cache in begun:
                cache.discard()
            raise
        read = iter(rows)
        return [[next(read) for _ in range(part.num_logit_rows)] for part in parts]

    def _check_positions(self, segments: Sequence[BatchSpan]) -> None:
        num_tokens = max((each.position + len(each.token_ids) for each in segments), default=0)
        if num_tokens > self.max_tokens:
            raise InvalidRequestError(
                f"a sequence of {num_tokens} tokens is longer than the {self.max_tokens} tokens of the model"
            )

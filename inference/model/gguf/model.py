"""A model on llama.cpp: token trees in, next-token logits out, and the choice among them.

All sequences of a step are one pass. What a row gets depends on its neighbours there in the last bits, as llama.cpp
computes products of one row and of several in different ways.
"""

import math
from collections.abc import Generator, Sequence

from inference.errors import InvalidRequestError
from inference.model.gguf.kv_cache import CellPool, GgufSequenceCache
from inference.model.gguf.llama import BatchSpan
from inference.model.gguf.recurrent_cache import RecurrentSequenceCache, StatePool
from inference.model.language_model import LanguageModel, SequenceInput
from inference.model.sampler import NumpyRow, NumpyTokens

_Cache = GgufSequenceCache | RecurrentSequenceCache


class GgufModel(LanguageModel):
    """A `LanguageModel` on llama.cpp. One thread at a time may use it."""

    runs_together = True

    def __init__(self, pool: CellPool, tokens: NumpyTokens, row_cost: float = math.inf) -> None:
        self._pool, self._tokens, self.row_cost = pool, tokens, row_cost
        self.max_tokens = pool.llama.max_tokens

    def new_cache(self, num_tokens: int = 256) -> _Cache:
        """An empty cache with room for `num_tokens`. Raises OverloadedError."""
        if isinstance(self._pool, StatePool):
            return RecurrentSequenceCache(self._pool, num_tokens)
        return GgufSequenceCache(self._pool, num_tokens)

    def forward(self, parts: Sequence[SequenceInput]) -> list[list[NumpyRow]]:
        """Forwards all parts, in as few passes as their caches allow. Returns the rows of each part that wants them.

        Raises OverloadedError or ModelError; the kept tokens of the caches are then unchanged.
        """
        begun: list[tuple[_Cache, Generator[list[BatchSpan], None, None]]] = []
        found: list[dict[int, NumpyRow]] = [{} for _ in parts]
        try:
            for part in parts:
                assert isinstance(part.cache, _Cache), "every cache comes from new_cache"
                part.cache.reserve(part.tree.num_rows)
                begun.append((part.cache, part.cache.build_passes(part)))
            while spans := [
                (span, rows) for (_, passes), rows in zip(begun, found, strict=True) for span in next(passes, [])
            ]:
                self._run(*zip(*spans, strict=True))
        except BaseException:
            for cache, passes in begun:
                passes.close()
                cache.discard()
            raise
        return [[rows[index] for index in range(part.num_logit_rows)] for part, rows in zip(parts, found, strict=True)]

    def _run(self, spans: Sequence[BatchSpan], found: Sequence[dict[int, NumpyRow]]) -> None:
        """One pass, whose rows are added to what each span's part has found."""
        num_tokens = max(each.position + len(each.token_ids) for each in spans)
        if num_tokens > self.max_tokens:
            raise InvalidRequestError(
                f"a sequence of {num_tokens} tokens is longer than the {self.max_tokens} tokens of the model"
            )
        logits = self._pool.llama.decode(spans)
        read = (row for each in logits for row in self._tokens.build_rows(each))
        wanted = [(span.row, rows) for span, rows in zip(spans, found, strict=True) if span.row is not None]
        for row, (index, rows) in zip(read, wanted, strict=True):
            rows[index] = row

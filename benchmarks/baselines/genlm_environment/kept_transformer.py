"""genlm-backend's Hugging Face model, extended to keep keys and values between calls, as its vLLM model does.

`AsyncTransformer` has `cache_kv` for one prefix at a time. The prefix that all members of a beam share hardly grows,
because some improbable member differs far back, and a batch is padded to its longest row. So every call reads most of
the text again.
"""

import asyncio
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import torch
from genlm.backend.llm import AsyncTransformer
from transformers.cache_utils import DynamicCache, DynamicLayer

_MAX_BATCH_ROWS = 64


class KeptContext:
    """An evaluated context: the distribution of the next token, and its keys and values."""

    def __init__(self, logprobs: torch.Tensor, parent: "KeptContext | None", new: torch.Tensor) -> None:
        self.logprobs = logprobs  # [vocab_size] float32
        self._parent = parent
        self._kv = new  # [num_layers, 2, num_kv_heads, num_new, head_dim]; the parent's come before it

    @property
    def kv(self) -> torch.Tensor:
        """Keys and values of the whole context. They are joined at the first use, because most are never used."""
        if self._parent is not None:
            self._kv = torch.cat((self._parent.kv, self._kv), dim=-2)
            self._parent = None
        return self._kv


class KeptTransformer(AsyncTransformer):  # type: ignore[misc]  # its package is not installed here
    """Answers all queries of one pass of the event loop in one forward pass, over tokens that are not kept yet."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._kept: dict[tuple[int, ...], KeptContext] = {}
        self._waiting: list[tuple[tuple[int, ...], asyncio.Future[torch.Tensor]]] = []

    def keep_only(self, contexts: Iterable[Sequence[int]]) -> None:
        """Drops all contexts but these, so that memory is bounded by the beam."""
        self._kept = {key: self._kept[key] for key in map(tuple, contexts) if key in self._kept}

    async def next_token_logprobs(self, token_ids: list[int], lora_name: str | None = None) -> torch.Tensor:
        assert lora_name is None
        key = tuple(token_ids)
        if key in self._kept:
            return self._kept[key].logprobs
        loop = asyncio.get_running_loop()
        future: asyncio.Future[torch.Tensor] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._answer)  # runs after all tasks that are ready now, so that they share a batch
        self._waiting.append((key, future))
        return await future

    def _answer(self) -> None:
        waiting, self._waiting = self._waiting, []
        keys = sorted({key for key, _ in waiting}, key=self._count_new)
        for _, group in groupby(keys, self._count_new):
            rows = list(group)
            for start in range(0, len(rows), _MAX_BATCH_ROWS):
                self._evaluate(rows[start : start + _MAX_BATCH_ROWS])
        for key, future in waiting:
            future.set_result(self._kept[key].logprobs)

    def _count_new(self, key: tuple[int, ...]) -> int:
        return next((count for count in range(1, len(key)) if key[:-count] in self._kept), len(key))

    @torch.no_grad()
    def _evaluate(self, keys: list[tuple[int, ...]]) -> None:
        """One forward pass over contexts with equally many new tokens. Past keys are padded at the end and masked."""
        num_new = self._count_new(keys[0])
        parents = [self._kept.get(key[:-num_new]) for key in keys]
        lengths = [len(key) - num_new for key in keys]
        longest = max(lengths)
        mask = torch.zeros(len(keys), longest + num_new, dtype=torch.long)
        mask[:, longest:] = 1
        for row, length in enumerate(lengths):
            mask[row, :length] = 1
        result = self.model(
            torch.tensor([key[-num_new:] for key in keys]),
            attention_mask=mask,
            position_ids=torch.tensor([list(range(length, length + num_new)) for length in lengths]),
            past_key_values=_pad_pasts(parents, longest),
            use_cache=True,
        )
        logprobs = torch.log_softmax(result.logits[:, -1], -1, dtype=torch.float32)
        layers = result.past_key_values.layers
        new = torch.stack([torch.stack((layer.keys, layer.values))[..., longest:, :] for layer in layers])
        for row, (key, parent) in enumerate(zip(keys, parents, strict=True)):
            self._kept[key] = KeptContext(logprobs[row], parent, new[:, :, row])


def _pad_pasts(parents: list[KeptContext | None], longest: int) -> DynamicCache:
    """Returns the parents' keys and values as one batch, padded with zeros; an empty cache if there are no parents."""
    pasts = DynamicCache()
    first = parents[0]
    if first is None:
        return pasts
    num_layers, _, num_heads, _, head_dim = first.kv.shape
    batch = first.kv.new_empty(num_layers, 2, len(parents), num_heads, longest, head_dim)
    for row, parent in enumerate(parents):
        assert parent is not None
        length = parent.kv.shape[-2]
        batch[:, :, row, :, :length] = parent.kv
        batch[:, :, row, :, length:] = 0
    for keys, values in batch:
        layer = DynamicLayer()
        layer.lazy_initialization(keys, values)
        layer.keys, layer.values = keys, values  # DynamicCache.update would copy them
        pasts.layers.append(layer)
    return pasts

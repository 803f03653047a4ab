"""A model of transformers on its device: token trees in, rows of logits out, one sequence in a pass.

The keys and values of a sequence are in a `DynamicCache` of transformers. A tree is forwarded by transformers' own
masks: they are functions of a row's and a key's place, and get their positions instead. So windows and chunks are those
of the family, and a row sees its own ancestors only.

Rows of logits stay on their device. A resident tensor has the rank of each token in the sorted vocabulary, so an
allowed set is two integers and a few ids: `lo <= rank[token] < hi`. The greedy choice brings a few numbers to the host,
and nothing of the vocabulary's size.
"""

import inspect
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from transformers import AttentionMaskInterface, DynamicCache
from transformers.masking_utils import eager_mask, sdpa_mask

from inference.errors import ModelError, OverloadedError
from inference.healing.covering import Crossing, find_allowed
from inference.model.language_model import ContiguousKVCache, LanguageModel, SequencePart
from inference.model.sampler import BestToken, LogitRow, NumpyTokens, find_padding
from trie_cache.trie import Trie, Vocabulary

_MAX_TOKENS = 2048  # if the configuration names no limit
# Parts of the messages of bare RuntimeErrors from torch: the CPU's allocator, cuBLAS and cuDNN.
_SIGNS = ("can't allocate memory", "not enough memory", "out of memory", "ALLOC_FAILED")

TokenKV = torch.Tensor  # [size], device: one token's keys and values in all layers


@contextmanager
def refusing_when_out_of_memory(purpose: str) -> Iterator[None]:
    """Inside the context, a failed allocation raises OverloadedError, with `purpose` in its message."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise OverloadedError(f"the device has no memory left for {purpose}; try again in a moment") from error


def is_out_of_memory(error: Exception) -> bool:
    """True if `error` reports a failed allocation."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(sign in str(error) for sign in _SIGNS)


@dataclass(frozen=True, slots=True)
class _Places:
    """Where the keys of a pass over a tree stand, and which of them its rows see."""

    positions: torch.Tensor  # [num_keys] int64, device
    visible: torch.Tensor  # [num_rows, num_keys] bool, device; the rows are the last keys


_PLACES: ContextVar[_Places | None] = ContextVar("midtoken_places", default=None)  # of the pass of this thread


def _build_mask(build: Any, *args: Any, mask_function: Any, **named: Any) -> Any:  # transformers has no types
    """A mask as transformers builds it; during a pass over a tree, by positions and ancestors."""
    places = _PLACES.get()
    if places is None:
        return build(*args, mask_function=mask_function, **named)
    positions, visible = places.positions, places.visible
    first = len(positions) - len(visible)

    def sees(batch: Any, head: Any, row: Any, key: Any) -> Any:
        return mask_function(batch, head, positions[row], positions[key]) & visible[row - first, key]

    return build(*args, mask_function=sees, **named | {"allow_is_causal_skip": False})


for _name, _build in (("sdpa", sdpa_mask), ("eager", eager_mask)):
    AttentionMaskInterface.register(_name, partial(_build_mask, _build))


@dataclass(frozen=True, slots=True)
class _Layout:
    """The keys and values of one token."""

    planes: tuple[tuple[int, int, int, int], ...]  # of each layer that has some: its index, heads, and both dimensions
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def read(cls, kv: DynamicCache) -> Self:
        layers = [(index, each) for index, each in enumerate(kv.layers) if each.is_initialized]
        shapes = [(index, each.keys.shape[1], each.keys.shape[3], each.values.shape[3]) for index, each in layers]
        return cls(tuple(shapes), layers[0][1].dtype, layers[0][1].device)

    @property
    def sizes(self) -> list[int]:
        """How many numbers the planes have, keys before values."""
        return [heads * dim for _, heads, *dims in self.planes for dim in dims]

    def find_room(self, num_tokens: int) -> int:
        """The number of tokens, if there is memory for so many. Raises OverloadedError."""
        with refusing_when_out_of_memory(f"the keys and values of {num_tokens} tokens"):
            torch.empty((num_tokens, sum(self.sizes)), dtype=self.dtype, device=self.device)
        return num_tokens


class TorchSequenceCache(ContiguousKVCache):
    """Rows in a `DynamicCache`."""

    def __init__(self, layout: _Layout, num_tokens: int) -> None:
        """An empty cache with room for `num_tokens`. Raises OverloadedError."""
        self.kv, self.capacity = DynamicCache(), layout.find_room(num_tokens)
        self._layout = layout

    @property
    def nbytes(self) -> int:
        """The memory of the keys and values, and of the room."""
        return self.capacity * sum(self._layout.sizes) * self._layout.dtype.itemsize

    def reserve(self, num_new: int) -> None:
        """Finds out whether there is room for `num_new` rows after the kept ones. Raises OverloadedError."""
        if self.num_tokens + num_new > self.capacity:
            self.capacity = self._layout.find_room(self.num_tokens + num_new)

    @torch.inference_mode()
    def fork(self, num_tokens: int | None = None, capacity: int = 0) -> Self:
        """An independent copy, of the first `num_tokens` only if given, with room for `capacity` tokens.

        Raises OverloadedError.
        """
        num_kept = self.num_tokens if num_tokens is None else min(num_tokens, self.num_tokens)
        other = type(self)(self._layout, max(num_kept, capacity))
        with refusing_when_out_of_memory(f"the keys and values of {num_kept} tokens"):
            for index, *_ in self._layout.planes if num_kept else ():
                layer = self.kv.layers[index]
                other.kv.update(layer.keys[:, :, :num_kept], layer.values[:, :, :num_kept], index)  # which copies
        other.num_tokens = num_kept
        return other

    @torch.inference_mode()
    def write_kv(self, stored: Sequence[TokenKV]) -> None:
        """See `ContiguousKVCache`."""
        for layer in self.kv.layers:
            if layer.is_initialized:
                layer.keys, layer.values = (each[:, :, : self.num_tokens] for each in (layer.keys, layer.values))
        if not stored:
            return
        with refusing_when_out_of_memory(f"the keys and values of {len(stored)} tokens"):
            states = iter(torch.split(torch.stack(list(stored)), self._layout.sizes, dim=1))
            for index, heads, *dims in self._layout.planes:
                shaped = [next(states).reshape(1, len(stored), heads, dim).transpose(1, 2) for dim in dims]
                self.kv.update(*shaped, index)

    @torch.inference_mode()
    def copy_kv(self, start: int, stop: int) -> list[TokenKV]:
        """See `ContiguousKVCache`."""
        if start >= stop:
            return []
        layers = [self.kv.layers[index] for index, *_ in self._layout.planes]
        planes = [plane[0, :, start:stop] for layer in layers for plane in (layer.keys, layer.values)]
        with refusing_when_out_of_memory(f"the keys and values of {stop - start} tokens"):
            rows = torch.cat([plane.transpose(0, 1).flatten(1) for plane in planes], dim=1)
            return [row.clone() for row in rows]


class TorchRow(LogitRow):
    """A row on a device, in the type of the model."""

    __slots__ = ()

    @torch.inference_mode()
    def find_best(self, crossing: Crossing) -> BestToken:
        """See `LogitRow`. One copy brings the three numbers to the host."""
        allowed: torch.Tensor = self.logits.float()
        if crossing.remaining_bytes:
            allowed = allowed.masked_fill(~self.tokens.allow(crossing), -math.inf)
        best = allowed.max()
        token_id = torch.where(allowed == best, self.tokens.ids, len(allowed)).min()
        numbers = torch.stack((token_id.float(), best, allowed.logsumexp(0)))  # ids below 2**24 are exact
        at, logit, log_mass = numbers.tolist()
        if not crossing.remaining_bytes:
            self._log_total = log_mass
        return BestToken(-1 if logit == -math.inf else int(at), logit, log_mass)

    def to_host(self) -> npt.NDArray[np.float32]:
        """See `LogitRow`."""
        found: npt.NDArray[np.float32] = self.logits.float().cpu().numpy()
        return found


class TorchTokens:
    """Which tokens rows on a device have, and which may follow a crossing."""

    def __init__(self, vocabulary: Vocabulary, trie: Trie, device: torch.device) -> None:
        self._trie = trie
        self._ranks = torch.from_numpy(trie.rank.copy()).to(device)  # [vocab_size] int32
        self._padding = torch.from_numpy(find_padding(vocabulary, trie)).to(device)
        self.ids = torch.arange(len(trie.rank), device=device)
        self.find_ids = NumpyTokens(vocabulary, trie).find_ids

    @torch.inference_mode()
    def build_rows(self, logits: torch.Tensor) -> list[TorchRow]:
        """A row for each line of `logits`, [num_rows, vocab_size], device. Rows own their memory."""
        return [TorchRow(line.index_fill(0, self._padding, -math.inf), self) for line in logits]

    def allow(self, crossing: Crossing) -> torch.Tensor:
        """The mask of the tokens that may follow a crossing with remaining bytes, [vocab_size] bool."""
        (lo, hi), more_ids = find_allowed(self._trie, crossing)
        is_allowed = (self._ranks >= lo) & (self._ranks < hi)
        for each in more_ids:
            is_allowed |= self.ids == each
        return is_allowed


class TorchModel(LanguageModel):
    """A `LanguageModel` on one torch device."""

    runs_together = False
    token_cost = 0.1

    tokens: TorchTokens  # of the tokenizer, which is read when the number of logits is known

    def __init__(self, model: torch.nn.Module, device: torch.device) -> None:
        """Forwards two tokens, to find the shape of each layer's keys and values, and the number of logits.

        Raises ModelError.
        """
        self._model, self.device = model.eval(), device
        self.dtype = next(model.parameters()).dtype
        self.max_tokens = _read_max_tokens(model)
        self._takes_number = "logits_to_keep" in inspect.signature(model.forward).parameters
        kv = DynamicCache()
        self.vocab_size = self._run(kv, (0, 0), range(2), 1).shape[1]
        self._layout = _Layout.read(kv)

    def new_cache(self, num_tokens: int = 256) -> TorchSequenceCache:
        """An empty cache with room for `num_tokens`. Raises OverloadedError."""
        return TorchSequenceCache(self._layout, num_tokens)

    def forward(self, parts: Sequence[SequencePart]) -> list[list[TorchRow]]:
        """Forwards the parts one after the other. Returns the rows of each part that wants them.

        Raises OverloadedError or ModelError; the caches then have the tokens that they had.
        """
        for part in parts:
            part.cache.reserve(part.tree.num_tokens)
        return [self._forward_part(part) for part in parts]

    def forward_plainly(self, token_ids: Sequence[int]) -> npt.NDArray[np.float32]:
        """The logits after a text, [vocab_size], as transformers computes them without a cache, masks or positions."""
        with torch.inference_mode():
            logits = self._model(input_ids=torch.tensor([token_ids], device=self.device), use_cache=False).logits
        return self.tokens.build_rows(logits[0, -1:])[0].to_host()

    def _forward_part(self, part: SequencePart) -> list[TorchRow]:
        cache, tree, num_stored = part.cache, part.tree, len(part.stored)
        assert isinstance(cache, TorchSequenceCache), "every cache comes from new_cache"
        cache.write_kv(part.stored)
        positions = tree.find_positions(cache.num_tokens)
        places = None
        if tree.branch_ids:
            visible = np.pad(tree.build_mask()[num_stored:], ((0, 0), (cache.num_tokens, 0)), constant_values=True)
            keys = torch.tensor([*range(cache.num_tokens), *positions], device=self.device)
            places = _Places(keys, torch.from_numpy(visible).to(self.device))
        ids = (*tree.chain_ids, *tree.branch_ids[num_stored:])
        token = _PLACES.set(places)
        try:
            with refusing_when_out_of_memory(f"a forward pass over {len(ids)} tokens"):
                logits = self._run(cache.kv, ids, positions[num_stored:], part.num_logit_rows)
                return self.tokens.build_rows(logits)
        finally:
            _PLACES.reset(token)

    @torch.inference_mode()
    def _run(self, kv: DynamicCache, ids: Sequence[int], positions: Sequence[int], num_wanted: int) -> torch.Tensor:
        """Next-token logits after the last rows, [num_wanted, vocab_size] of the model's type; float32 for float64."""
        options = {"logits_to_keep": max(num_wanted, 1)} if self._takes_number else {}
        output = self._model(
            input_ids=torch.tensor([ids], device=self.device),
            position_ids=torch.tensor([list(positions)], device=self.device),
            past_key_values=kv,
            use_cache=True,
            **options,
        )
        logits: torch.Tensor = output.logits[0]
        logits = logits[len(logits) - num_wanted :]  # some return all, whatever they are asked for
        logits = logits.float() if self.dtype == torch.float64 else logits
        if not logits.sum(dim=-1, dtype=torch.float32).isfinite().all():  # much faster than to ask each of them
            name = str(self.dtype).removeprefix("torch.")
            raise ModelError(
                f"in {name}, the model's logits are infinite or NaN: its weights are damaged or too large for this "
                "dtype"
            )
        return logits


def _read_max_tokens(model: Any) -> int:  # a transformers model, which has no types
    """The most tokens of one sequence that the configuration names.

    With the longrope scaling, a position beyond the original length changes the frequencies of all tokens in the pass,
    so sequences must stay below it. The dynamic scaling changes them only beyond the named length. Gemma 3 and others
    have the scaling of each type of layer in its own object.
    """
    config = model.config.get_text_config(decoder=True)
    named, scaling = getattr(config, "max_position_embeddings", None), getattr(config, "rope_parameters", None) or {}
    limits = [named] if isinstance(named, int) and named > 0 else [_MAX_TOKENS]
    for each in (scaling, *(part for part in scaling.values() if isinstance(part, dict))):
        if each.get("rope_type") == "longrope":
            limits.append(each["original_max_position_embeddings"])
    return min(limits)

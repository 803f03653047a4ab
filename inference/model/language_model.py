"""The engine's interface to a model: forward trees, choose among their crossings, keep chains. Without torch.

A forward pass gives a row of logits for each node. The engine may keep rows, and the keys and values of branches, for
as long as it likes: what stands in them depends only on the tokens before them.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from inference.config import DEFAULT_CONTEXT_TOKENS
from inference.errors import ModelError
from inference.healing.loaded_tokenizer import LoadedTokenizer
from inference.healing.token_tree import TokenTree
from inference.model.sampler import SampleRequest, SampleResult, choose


class TokenKV(Protocol):
    """The keys and values of one token, copied out of a cache. Each implementation has its own type."""

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""


class SequenceCache(Protocol):
    """The keys and values of one sequence's cached tokens."""

    @property
    def num_tokens(self) -> int:
        """The number of cached tokens."""

    @property
    def capacity(self) -> int:
        """The number of tokens that it has room for."""

    @property
    def nbytes(self) -> int:
        """The memory that it takes, with the room for further tokens."""

    def reserve(self, num_new: int) -> None:
        """Makes room for `num_new` tokens after the kept ones, if necessary.

        `LanguageModel.forward` does this too. Call this first, with `tree.num_tokens` of each sequence, to find out
        which of them has no room. Raises OverloadedError if there is no memory; the cache is then unchanged.
        """

    def keep(self, tree: TokenTree) -> None:
        """Keeps the chain of the last forwarded tree; discards the branches."""

    def copy_branches(self, tree: TokenTree) -> list[Any]:  # of TokenKV
        """The keys and values of each branch of the last forwarded tree. Call it before `keep`.

        None for one that could not be stored.
        """

    def copy_tokens(self, start: int) -> list[Any]:  # of TokenKV
        """The keys and values of the cached tokens from `start` on. None for one that could not be stored."""

    def append(self, stored: Sequence[Any]) -> None:
        """Keeps further tokens, whose keys and values were copied from a cache of the same model.

        Raises OverloadedError if there is no memory; the cache is then unchanged.
        """

    def cut(self, num_tokens: int) -> None:
        """Discards the cached tokens after the first `num_tokens`; more, if it has no state to go on from there."""

    def fork(self, num_tokens: int | None = None, capacity: int = 0) -> Self:
        """An independent copy of the first tokens, or of as many as `cut` leaves; of all if None.

        It has room for `capacity` tokens, or for the copied ones if they are more, whatever room the source has.
        Raises OverloadedError.
        """


class ContiguousKVCache(ABC):
    """A `SequenceCache` in one array: the cached tokens, then the last forwarded tree's chain and branches."""

    num_tokens = 0

    @abstractmethod
    def reserve(self, num_new: int) -> None:
        """See `SequenceCache`."""

    @abstractmethod
    def write_kv(self, stored: Sequence[Any]) -> None:
        """Writes keys and values after the cached tokens, without keeping them. Call `reserve` first."""

    @abstractmethod
    def copy_kv(self, start: int, stop: int) -> list[Any]:
        """Copies of the keys and values in these places."""

    def keep(self, tree: TokenTree) -> None:
        """Keeps the chain of the last forwarded tree; discards the branches."""
        self.num_tokens += len(tree.chain_ids)

    def copy_branches(self, tree: TokenTree) -> list[Any]:
        """Copies of the keys and values of the last forwarded tree's branches. Call this before `keep`."""
        first = self.num_tokens + len(tree.chain_ids)
        return self.copy_kv(first, first + len(tree.branch_ids))

    def copy_tokens(self, start: int) -> list[Any]:
        """Copies of the keys and values of the cached tokens from `start` on."""
        return self.copy_kv(start, self.num_tokens)

    def append(self, stored: Sequence[Any]) -> None:
        """Keeps further tokens, whose keys and values were copied. Raises OverloadedError, with the cache unchanged."""
        self.reserve(len(stored))
        self.write_kv(stored)
        self.num_tokens += len(stored)

    def cut(self, num_tokens: int) -> None:
        """Forgets the cached tokens beyond the first `num_tokens`."""
        self.num_tokens = min(self.num_tokens, num_tokens)


@dataclass(frozen=True, slots=True)
class SequencePart:
    """One sequence's part in a forward pass."""

    cache: SequenceCache
    tree: TokenTree  # its chain may be empty if the cache has tokens
    stored: tuple[Any, ...] = ()  # of the tree's first branches, which are not forwarded again; then it has no chain
    wants_logits: bool = True  # False while a piece of a long prompt is prefilled

    def __post_init__(self) -> None:
        assert not (self.stored and self.tree.chain_ids), "stored branches follow the cached tokens"

    @property
    def num_new_tokens(self) -> int:
        """The number of tokens that are forwarded."""
        return self.tree.num_tokens - len(self.stored)

    @property
    def num_logit_rows(self) -> int:
        """The number of rows of logits: the chain's end, if there is a chain, and the branches that are not stored."""
        num_branches = len(self.tree.branch_ids) - len(self.stored)
        return bool(self.tree.chain_ids) + num_branches if self.wants_logits else 0


class LanguageModel(Protocol):
    """A model that forwards the trees of many sequences."""

    max_tokens: int  # the most tokens of one sequence
    runs_together: bool  # whether a pass over many sequences takes less time than one pass for each
    token_cost: float  # the time of a further token in a small pass, in passes over one

    def new_cache(self, num_tokens: int) -> SequenceCache:
        """An empty cache with room for `num_tokens`; `reserve` makes room for more.

        Raises OverloadedError if there is no memory for it.
        """

    def forward(self, parts: Sequence[SequencePart]) -> list[list[Any]]:  # of LogitRow
        """Forwards all parts. Returns the logit rows of each part that wants them.

        These are one for the end of the chain, if there is one, and one for each branch that is not stored. Afterwards
        call `cache.keep` once for each part. Raises OverloadedError if there is not enough memory for all parts
        together. The cached tokens are then unchanged, so fewer of the same parts may be tried again.
        """

    def choose(self, requests: Sequence[SampleRequest]) -> list[SampleResult]:
        """One result for each request. The row of the chain's end must be there."""
        return [choose(each) for each in requests]


ModelT_co = TypeVar("ModelT_co", bound=LanguageModel, covariant=True)


@dataclass(frozen=True, slots=True)
class LoadedModel(Generic[ModelT_co]):
    """A model that is ready to run, and its tokenizer."""

    model: ModelT_co
    tokenizer: LoadedTokenizer
    runs_as: str = ""  # the type of numbers, the threads, and why
    cache_tokens: int = sys.maxsize  # of all sequences in use together; others wait
    context_tokens: int | None = None  # of a prompt, if its memory is taken already
    auto_tokens: int = DEFAULT_CONTEXT_TOKENS  # of a prompt, where nothing names them


Logits = npt.NDArray[np.float32]  # [vocab_size]

# A tree, by which a model is checked that was just loaded, and its texts.
_IDS = tuple(range(1, 8))
_START, _TREE = TokenTree(_IDS[:3]), TokenTree(_IDS[3:4], _IDS[4:], (None, 0, None))
_TEXTS = _IDS[:4], _IDS[:5], _IDS[:6], (*_IDS[:4], _IDS[6])


def check_tree_difference(difference: float, library: str, most: float = 0.1) -> None:
    """Raises ModelError if `measure_tree_difference` has found more than rounding, which gives `most`."""
    if not difference <= most:
        raise ModelError(f"{library} computes other logits for a token in a tree than in a text")


def measure_tree_difference(model: LanguageModel, read: Callable[[Sequence[int]], Logits] | None = None) -> float:
    """The greatest difference between the logits of a tree's nodes and those of the same tokens as a text.

    It is a share of the spread of the logits. `read`: those after a text by other means than the model's. Raises
    ModelError if they are the same for all tokens.
    """
    cache = model.new_cache(len(_IDS))
    model.forward([SequencePart(cache, _START)])
    cache.keep(_START)
    in_tree = np.stack([row.to_host() for row in model.forward([SequencePart(cache, _TREE)])[0]])
    in_texts = np.stack([(read or partial(_read, model))(text) for text in _TEXTS])
    is_token = np.isfinite(in_tree[0])  # the sampler hides the others
    in_tree, in_texts = in_tree[:, is_token], in_texts[:, is_token]
    spreads = in_texts.std(axis=1)
    if not spreads.all():
        raise ModelError("its logits are the same for all tokens, so its weights are not those of a trained model")
    return float(((in_tree - in_texts).std(axis=1) / spreads).max())


def _read(model: LanguageModel, text: Sequence[int]) -> Logits:
    part = SequencePart(model.new_cache(len(text)), TokenTree(tuple(text)))
    [[row]] = model.forward([part])
    logits: Logits = row.to_host()
    return logits

"""A `TokenReader` that runs a model, with the engine's interface to it and the engine's memory of what was read.

The strings' common beginning, the *trunk*, is a `TokenSequence`. Below it, the strings are branches of one token tree.
Keys and values of branches are remembered there; rows only as long as the strings have them.
"""

from collections.abc import Sequence
from contextlib import nullcontext

import numpy as np
import numpy.typing as npt

from inference.characters.token_string import PassWatch, TokenString, find_common_beginning
from inference.errors import InvalidRequestError
from inference.healing.token_tree import TokenTree, TreeBuilder
from inference.model.language_model import LanguageModel, SequenceInput
from inference.model.sampler import find_row
from inference.model.token_sequence import TokenSequence
from trie_cache.trie import Trie

_MAX_STRINGS = 128  # in one pass: it gives a row of the vocabulary's size for each
_MAX_ROW_BYTES = 512 * 2**20
_MAX_CHAIN = 512  # tokens in one pass, so that a long context can be stopped between two


class ModelReader:
    """Reads strings with a model."""

    def __init__(
        self,
        model: LanguageModel,
        trie: Trie,
        end_ids: Sequence[int],
        max_tokens: int,
        watch: PassWatch = nullcontext,
        max_row_bytes: int = _MAX_ROW_BYTES,
    ) -> None:
        """`max_tokens`: the limit for one string.

        `max_row_bytes`: for the rows of all strings that are read at once; a wide beam has many.
        """
        self.max_tokens = min(max_tokens, model.max_tokens)
        self._num_texts = trie.num_tokens
        self._columns = np.concatenate([trie.order, np.array(end_ids, np.int32)])
        self._model = model
        self._watch = watch
        self._max_row_bytes = max_row_bytes
        self._sequence = TokenSequence(model.new_cache(_MAX_CHAIN))

    def read(self, strings: Sequence[TokenString]) -> None:
        """Fills `log_probs` and `log_end` of the strings, many in one forward pass.

        Raises OverloadedError, InvalidRequestError if they are too many, and what the watch raises.
        """
        num_bytes = 4 * len(self._columns) * len(strings)  # of float32
        if num_bytes > self._max_row_bytes:
            raise InvalidRequestError(
                f"the probabilities after {len(strings)} token strings take {num_bytes >> 20} MiB, and at most "
                f"{self._max_row_bytes >> 20} are allowed: ask for a smaller width"
            )
        for first in range(0, len(strings), _MAX_STRINGS):
            self._read(strings[first : first + _MAX_STRINGS])

    def _read(self, strings: Sequence[TokenString]) -> None:
        sequence, trunk, paths = self._sequence, find_common_beginning(strings), TreeBuilder()
        nodes = [paths.add_path(string.find_tokens_since(trunk)) for string in strings]
        tree, chain = paths.build(()), self._begin(trunk, is_wanted=None in nodes)
        if chain:
            self._forward(SequenceInput(sequence.cache, tree.with_chain(chain)))
        else:
            self._forward(sequence.build_part(tree, [node for node in nodes if node is not None]))
        rows = sequence.recall_rows(tree)
        logits = np.stack([row.to_host() for row in (rows[find_row(node)] for node in nodes) if row is not None])
        sequence.drop_rows()
        for string, line in zip(strings, _normalize(logits[:, self._columns]), strict=True):
            string.log_probs = line[: self._num_texts].copy()
            string.log_end = float(np.logaddexp.reduce(line[self._num_texts :], dtype=np.float64))

    def _begin(self, trunk: TokenString, *, is_wanted: bool) -> tuple[int, ...]:
        """Makes the sequence the beginning of the trunk. Returns the last tokens, which are left to forward.

        `is_wanted`: at least one is, for the logits after the trunk.
        """
        token_ids = trunk.find_tokens_since(None)
        chain = self._sequence.begin(token_ids)
        if is_wanted and not chain:
            self._sequence.cut(len(token_ids) - 1)
            chain = token_ids[self._sequence.num_tokens :]
        while len(chain) > _MAX_CHAIN:
            self._forward(SequenceInput(self._sequence.cache, TokenTree(chain[:_MAX_CHAIN]), wants_logits=False))
            chain = chain[_MAX_CHAIN:]
        return chain

    def _forward(self, part: SequenceInput) -> None:
        with self._watch():
            [rows] = self._model.forward([part])
        self._sequence.absorb(part, rows)


def _normalize(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The logarithms of the probabilities that `logits`, [num_rows, num_columns], stand for. Overwrites `logits`."""
    logits -= logits.max(axis=1, keepdims=True)
    logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return logits

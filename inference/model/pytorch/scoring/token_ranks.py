"""The vocabulary on the device: the rank of each token, and the tokens of an interval."""

import numpy as np
import torch

from trie_cache.trie import Interval, Trie
from trie_cache.vocabulary import Vocabulary

CHUNK_SIZE = 2048  # logits that one program of the kernels reads, and that one step of a draw chooses among


class TokenRanks:
    """Which ids are tokens, and which of these a question allows."""

    def __init__(self, vocabulary: Vocabulary, trie: Trie, device: torch.device, chunk_size: int = CHUNK_SIZE) -> None:
        """`chunk_size`: a power of two. Draws with the same seed differ between sizes."""
        is_token = np.array([bool(data) for data in vocabulary.token_bytes])
        is_token[sorted(vocabulary.special_ids)] = True
        self.device = device
        self.chunk_size = chunk_size
        self.num_logits = trie.num_rows  # of a row
        self.num_text_tokens = trie.num_tokens  # the rank of special tokens, which are in no interval of text
        self.num_leading = int(np.append(is_token, False).argmin())  # the ids from 0 that are tokens without a gap
        self.num_chunks = -(-self.num_logits // chunk_size)
        ranks = np.full(self.num_chunks * chunk_size, -1, np.int32)
        ranks[: self.num_logits][is_token] = trie.rank[is_token]
        self.ranks = torch.from_numpy(ranks).to(device)  # [num_chunks * chunk_size] int32, -1 for ids without a token
        self._order = torch.tensor(trie.order, device=device)  # [num_text_tokens] int32, rank -> id
        self._token_ids = torch.from_numpy(np.flatnonzero(is_token).astype(np.int32)).to(device)

    @property
    def all_tokens(self) -> Interval:
        """The interval of all tokens, special ones too."""
        return Interval(0, self.num_text_tokens + 1)

    def find_ids(self, interval: Interval, more_ids: torch.Tensor) -> torch.Tensor:
        """The ids of an interval and some more, ascending: [num_allowed] int64, device. Nothing is copied to the host.

        `more_ids`: [num_more], device; not in the interval.
        """
        if interval == self.all_tokens:
            return self._token_ids.long()
        return torch.cat([more_ids.long(), self._order[interval.lo : interval.hi].long()]).sort().values

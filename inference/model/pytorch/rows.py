"""Rows of logits that stay on their device. What may follow a crossing is masked there, by comparing ranks.

A resident tensor has the rank of each token in the sorted vocabulary, so an allowed set is two integers and a few ids:
`lo <= rank[token] < hi`. A few numbers come to the host, and nothing of the vocabulary's size.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from inference.healing.covering import Crossing, Rule, find_allowed
from inference.model.sampler import BestToken, Sampling, find_padding
from trie_cache.trie import Trie
from trie_cache.vocabulary import Vocabulary


class TorchRow:
    """The next-token logits after one node, in the type of the model. See `LogitRow`."""

    __slots__ = ("_log_total", "_tokens", "logits")

    def __init__(self, logits: torch.Tensor, tokens: "TorchTokens") -> None:
        """`logits`: [vocab_size], device, -inf for padding rows."""
        self.logits = logits
        self._tokens = tokens
        self._log_total: float | None = None

    @property
    def nbytes(self) -> int:
        """See `LogitRow`."""
        return self.logits.nbytes

    @property
    def log_total(self) -> float:
        """See `LogitRow`. Computed on first use."""
        if self._log_total is None:
            self._log_total = self.find_best(_ANY).log_mass
        return self._log_total

    def find_logit(self, token_id: int) -> float:
        """See `LogitRow`."""
        return float(self.logits[token_id])

    @torch.inference_mode()
    def find_best(self, crossing: Crossing) -> BestToken:
        """See `LogitRow`. One copy brings the three numbers to the host."""
        allowed = self._mask(crossing)
        best = allowed.max()
        token_id = torch.where(allowed == best, self._tokens.ids, len(allowed)).min()
        numbers = torch.stack((token_id.float(), best, allowed.logsumexp(0)))  # ids below 2**24 are exact
        at, logit, log_mass = numbers.tolist()
        if not crossing.remaining_bytes:
            self._log_total = log_mass
        return BestToken(-1 if logit == -math.inf else int(at), logit, log_mass)

    def to_host(self) -> npt.NDArray[np.float32]:
        """See `LogitRow`."""
        found: npt.NDArray[np.float32] = self.logits.float().cpu().numpy()
        return found

    @staticmethod
    @torch.inference_mode()
    def pick(
        members: "Sequence[tuple[TorchRow, Crossing, float]]", sampling: Sampling, draws: Sequence[float]
    ) -> list[tuple[int, int, float]]:
        """See `LogitRow`."""
        scores = torch.cat([row._mask(crossing) + offset for row, crossing, offset in members])
        scores = scores if scores.device.type == "mps" else scores.double()  # which that device has not
        if sampling.is_greedy:
            picks = scores.sort(descending=True, stable=True).indices[: len(draws)]
            picks = picks[scores[picks].isfinite()]
        else:
            weights = ((scores - scores.max()) / sampling.temperature).exp()
            if sampling.top_p < 1.0:  # the fewest most likely ones that reach it
                order = weights.sort(descending=True, stable=True).indices
                before = weights[order].cumsum(0) - weights[order]
                weights[order] *= before < sampling.top_p * weights.sum()
            totals = weights.cumsum(0)
            picks = torch.searchsorted(totals, torch.tensor(draws).to(totals) * totals[-1], right=True)
        size = members[0][0].logits.numel()
        pairs = zip(picks.tolist(), scores[picks].tolist(), strict=True)
        return [(*divmod(each, size), score) for each, score in pairs]

    def _mask(self, crossing: Crossing) -> torch.Tensor:
        """The logits, float32, and -inf for tokens that may not follow."""
        logits = self.logits.float()
        return logits if not crossing.remaining_bytes else logits.masked_fill(~self._tokens.allow(crossing), -math.inf)


_ANY = Crossing(None, b"", Rule.EXTEND)


class TorchTokens:
    """Which tokens rows on a device have, and which may follow a crossing."""

    def __init__(self, vocabulary: Vocabulary, trie: Trie, device: torch.device) -> None:
        self._trie = trie
        self._ranks = torch.from_numpy(trie.rank.copy()).to(device)  # [vocab_size] int32
        self._padding = torch.from_numpy(find_padding(vocabulary, trie)).to(device)
        self.ids = torch.arange(trie.num_rows, device=device)

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

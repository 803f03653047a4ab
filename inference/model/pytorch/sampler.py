"""The choice of the next token on a GPU, for many sequences at once.

A scorer reads the logits: it has the best token of each crossing of a covering, and the logits of the tree's tokens.
Here the paths are added and the most likely pair is chosen.

Samples, several choices at once and masses are rare. Their rows are copied to the host, where NumPy chooses.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from inference.errors import MidtokenError, ModelError
from inference.healing.covering import Crossing, Rule, find_allowed
from inference.healing.token_tree import TokenTree
from inference.model.language_model import Choice, SampleRequest, SampleResult, Sampling
from inference.model.numpy_sampler import NumpySampler, find_needed, find_row, weigh_nodes
from inference.model.pytorch.device import can_run_kernels, refusing_when_out_of_memory
from inference.model.pytorch.scoring import Question, Scorer, TokenRanks, build_batch
from trie_cache.trie import Interval, Trie
from trie_cache.vocabulary import Vocabulary

_Allowed = tuple[Interval, tuple[int, ...]]  # the ranks of the tokens that may follow, and the ids of those beside them
_NO_TOKENS = Interval(0, 0)


class HostSampler(NumpySampler):
    """Chooses with NumPy, from rows that are copied to the host."""

    def build_rows(self, logits: torch.Tensor) -> Sequence[Any]:  # type: ignore[override]  # here they are tensors
        """A row for each line of `logits`, [num_rows, vocab_size], device."""
        return super().build_rows(logits.float().cpu().numpy())


class TorchSampler:
    """Chooses tokens among those that a scorer found, for many sequences at once."""

    def __init__(self, vocabulary: Vocabulary, trie: Trie, ranks: TokenRanks, scorer: Scorer) -> None:
        self._host = HostSampler(vocabulary, trie)
        self._trie = trie
        self._ranks = ranks
        self._scorer = scorer
        self.new_random_source = self._host.new_random_source

    @torch.inference_mode()
    def build_rows(self, logits: torch.Tensor) -> list[torch.Tensor]:
        """A row for each line of `logits`, [num_rows, vocab_size], device, of the same type. Rows own their memory."""
        if len(logits) == 1 and logits.is_contiguous() and logits.untyped_storage().nbytes() == logits.nbytes:
            return [logits[0]]
        lines = logits.unbind()
        rows = [torch.empty_like(line, memory_format=torch.contiguous_format) for line in lines]
        if rows:
            torch._foreach_copy_(rows, lines)  # one launch for all of them
        return rows

    def copy_logits(self, rows: Sequence[torch.Tensor]) -> npt.NDArray[np.float32]:
        """The logits of some rows on the host, [num_rows, vocab_size]. Raises ModelError as `choose`."""
        logits: npt.NDArray[np.float32] = torch.stack(list(rows)).float().cpu().numpy()
        _check_finite(logits)
        return logits

    @torch.inference_mode()
    def choose(self, requests: Sequence[SampleRequest]) -> list[SampleResult]:
        """One result for each request, whose rows are tensors of `build_rows`.

        Raises ModelError if logits are infinite or no numbers: a choice among them would be arbitrary.
        """
        scored = iter(self.score([request for request in requests if request.wants_best]))
        return [
            next(scored).build_result() if request.wants_best else self._choose_on_host(request) for request in requests
        ]

    def _choose_on_host(self, request: SampleRequest) -> SampleResult:
        logits = torch.stack([row for row in request.rows if row is not None]).float()
        _check_finite(logits.logsumexp(dim=1).cpu().numpy())
        copies = iter(self._host.build_rows(logits))
        rows = [None if row is None else next(copies) for row in request.rows]
        return self._host.choose([dataclasses.replace(request, rows=rows)])[0]

    def score(self, requests: Sequence[SampleRequest]) -> "list[ScoredRequest]":
        """Answers requests for the best choice, all by one batch. Raises ModelError as `choose`."""
        scored = [ScoredRequest(request, self._find_allowed) for request in requests]
        questions = [question for each in scored for question in each.questions.values()]
        if questions:
            answers = self._scorer(build_batch(questions, self._ranks.device)).cpu().numpy().astype(np.float64)
            _check_finite(answers[0])
            ends = np.cumsum([len(each.questions) for each in scored])
            for each, own in zip(scored, np.split(answers, ends[:-1], axis=1), strict=True):
                each.take_answers(own)
        return scored

    def _find_allowed(self, crossing: Crossing) -> _Allowed:
        return find_allowed(self._trie, crossing) if crossing.remaining_bytes else (self._ranks.all_tokens, ())


def _check_finite(numbers: npt.NDArray[Any]) -> None:
    if not np.isfinite(numbers).all():
        raise ModelError("the model's logits are infinite or no numbers: its weights are damaged or too large")


class ScoredRequest:
    """A request for the best choice: of each crossing the best token, of each token of the tree its own logit."""

    def __init__(self, request: SampleRequest, find_allowed: Callable[[Crossing], _Allowed]) -> None:
        self._request = request
        tree = request.tree
        # Each is a row of the request, and the tokens that are asked for there.
        self._crossings = [(find_row(each.node), find_allowed(each)) for each in request.crossings]
        branches = [
            _name_branch(find_row(parent), id) for id, parent in zip(tree.branch_ids, tree.parents, strict=True)
        ]
        self.questions = {
            (row, allowed): Question(request.rows[row], *allowed)
            for row, allowed in (*self._crossings, *branches)
            if request.rows[row] is not None
        }
        self.bests: dict[tuple[int, _Allowed], tuple[float, int]] = {}  # log P after the row, and token id

    def take_answers(self, answers: npt.NDArray[np.float64]) -> None:
        """Takes the request's part of what `Scorer` describes."""
        log_probs, ids = answers[1] - answers[0], answers[2].astype(np.int64)
        self.bests = dict(zip(self.questions, zip(log_probs.tolist(), ids.tolist(), strict=True), strict=True))

    def build_result(self) -> SampleResult:
        """The choice, or the branches that must be read first."""
        request, bests = self._request, self.bests
        weights = weigh_nodes(request, lambda row, token_id: bests[_name_branch(row, token_id)][0])
        log_probs = [
            -math.inf if weights.find_missing(crossing) else weights.find_log_prob(crossing) + bests[key][0]
            for crossing, key in zip(request.crossings, self._crossings, strict=True)
        ]
        best = int(np.argmax(log_probs))
        needed = find_needed(request, weights, log_probs[best])
        if needed:
            return SampleResult((), needed)
        return SampleResult((Choice(request.crossings[best], bests[self._crossings[best]][1]),))


def _name_branch(row: int, token_id: int) -> tuple[int, _Allowed]:
    return row, (_NO_TOKENS, (token_id,))


Sampler = TorchSampler | HostSampler

_SPREAD = 4.0  # standard deviation of the logits of the check; real ones have 2 to 5
_TOLERANCE = 1e-3  # in float32. Sums in another order differ by some 1e-6


def check_sampler(sampler: TorchSampler, host: HostSampler, trie: Trie, logits: torch.Tensor) -> None:
    """Compares the best tokens after rows of logits, device, with NumPy's. Raises ModelError if they differ."""
    data = trie.spell(int(trie.order[len(trie.order) // 2]))
    crossings = [Crossing(None, data[:1], rule) for rule in Rule]
    crossings += [Crossing(None, b"", Rule.EXTEND), Crossing(None, data, Rule.SPELL)]
    crossings.append(Crossing(None, 64 * data, Rule.EXTEND))  # no token has so many bytes
    ours, theirs = (
        [
            SampleRequest(TokenTree((0,)), (each,), (row,), Sampling(0.0, 1.0), wants_scores=wants_scores)
            for each in crossings
            for row in rows
        ]
        for rows, wants_scores in ((sampler.build_rows(logits), False), (host.build_rows(logits), True))
    )
    found = np.array([best for each in sampler.score(ours) for best in each.bests.values()])
    scores = [result.scores for result in host.choose(theirs)]
    for name, numbers in zip(("best_log_probs", "best_ids"), found.T, strict=True):
        expected = np.concatenate([getattr(each, name) for each in scores])
        if not np.allclose(numbers, expected, 0, _TOLERANCE):
            dtype = str(logits.dtype).removeprefix("torch.")
            raise ModelError(
                f"on {logits.device}, choices among {dtype} logits are wrong: its {name} are {numbers}, not {expected}"
            )


def build_sampler(device: torch.device, dtype: torch.dtype, vocabulary: Vocabulary, trie: Trie) -> Sampler:
    """The sampler for logits of the type `dtype` on a device: on the host where there are no kernels that choose.

    Raises ModelError if the device's kernels cannot be used or give other answers than NumPy, and OverloadedError.
    """
    if not can_run_kernels(device, dtype):
        return HostSampler(vocabulary, trie)
    ranks = TokenRanks(vocabulary, trie, device)
    try:
        # Here, because the packages of torch for other devices come without triton.
        from inference.model.pytorch.choice_kernel import KernelScorer

        with refusing_when_out_of_memory("a check of the kernels that choose tokens"):
            logits = _SPREAD * torch.randn(3, ranks.num_logits, generator=torch.Generator().manual_seed(0))
            sampler = TorchSampler(vocabulary, trie, ranks, KernelScorer(ranks).score)
            check_sampler(sampler, HostSampler(vocabulary, trie), trie, logits.to(dtype).to(device))
    except MidtokenError:
        raise
    except Exception as error:  # the compiler of kernels raises undocumented exceptions
        raise ModelError(f"the kernels score_chunks and merge_chunks cannot be used on {device}: {error}") from error
    return sampler

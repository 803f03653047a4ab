"""Where a job, or one of its candidates, is in the model's cache, and what is forwarded for it next.

That may be *drafts* (prompt lookup): tokens that one forward pass verifies together. Text repeats itself. If the last
tokens also occur earlier in the sequence, what followed them there may follow here. The draft is forwarded as a branch.
As long as the choices agree with it, they need no pass of their own. The choices are made as without a draft, so greedy
completions are the same, and sampled ones come from the same distribution, with the same random numbers.

More tokens make a pass slower. So a draft has at most one token more than agree before it, and there is none where a
longer pass costs too much.
"""

import math
from array import array
from collections.abc import Sequence

import numpy as np

from inference.engine.candidate import Candidate
from inference.engine.job import Job
from inference.engine.stopping import LineRule
from inference.healing.token_tree import TokenTree
from inference.model.language_model import SequencePart
from inference.model.sampler import LogitRow, SampledToken, SampleRequest, Sampling
from inference.model.token_sequence import TokenSequence

MAX_DRAFT_TOKENS = 8
_MIN_MATCH, _MAX_MATCH = 2, 16
_MAX_TOKEN_COST = 0.5  # of a token more, in passes over one


class RunningSequence:
    """A sequence of the model, which is prefilled for a job, and then decoded for one of its candidates."""

    def __init__(
        self,
        job: Job,
        sequence: TokenSequence,
        random_sources: tuple[np.random.Generator | None, ...],
        token_cost: float = math.inf,
        candidate: Candidate | None = None,
    ) -> None:
        """`random_sources`: one for each candidate that chooses here. `token_cost`: of drafts; see `LanguageModel`.

        `candidate`: None until the first choice.
        """
        self.job, self.sequence, self.candidate = job, sequence, candidate
        self.random_sources = random_sources
        self.tree = job.prompt.tree  # the tokens to forward next; no chain once its tokens are in the sequence
        self.missing: tuple[int, ...] = ()  # branches of `tree` to forward before the next choice
        self._token_cost = token_cost
        self._draft_ids: tuple[int, ...] = ()  # guesses of the next tokens, as long as they are right

    def prepare_choice(self) -> SampleRequest | None:
        """The request for the next choice; None if the model must forward something before it.

        Tokens that were forwarded earlier are moved into the sequence. The first choice of a job is for all its
        candidates together. Raises OverloadedError.
        """
        new_ids, rows = self.sequence.append_known(self.tree.chain_ids), []
        if not new_ids:
            rows = self.sequence.recall_rows(self.tree)
            if rows[0] is None:  # the logits at the end were dropped
                before = tuple(self.sequence.token_ids)
                self.sequence.cut(len(before) - 1)
                new_ids = before[self.sequence.num_tokens :]
        self.tree = self.tree.with_chain(new_ids)
        self.missing = tuple([branch for branch in self.missing if new_ids or rows[branch + 1] is None])
        if new_ids or self.missing:
            return None
        request, candidate = self.job.request, self.candidate
        return SampleRequest(
            self.tree,
            self.job.prompt.covering.crossings if candidate is None else candidate.crossings,
            rows,
            Sampling(request.temperature, request.top_p),
            self.random_sources,
            wants_scores=candidate is None and request.explain,
        )

    def fork(self, candidates: Sequence[Candidate]) -> "list[RunningSequence]":
        """A running sequence for each candidate. They differ from now on. Raises OverloadedError."""
        forked = list[RunningSequence]()
        for candidate in candidates:
            sequence, source = self.sequence.fork() if forked else self.sequence, self.random_sources[candidate.index]
            forked.append(RunningSequence(self.job, sequence, (source,), self._token_cost, candidate))
            forked[-1].tree = self.tree
        return forked

    def accept(self, choice: SampledToken) -> None:
        """Adds the path to the crossing and the token that was chosen there to the candidate."""
        candidate = self.candidate
        assert candidate is not None, "the first choice has made it"
        path = self.tree.spell_path(choice.crossing.node)
        new_ids = (*self.sequence.append_known(path), choice.token_id)  # a path may lack its keys and values
        candidate.accept(path, choice)
        self.tree = TokenTree(new_ids)
        is_right = self._draft_ids[:1] == (choice.token_id,)
        self.job.costs.num_accepted += is_right
        self._draft_ids = self._draft_ids[1:] if is_right else ()

    def build_part(self, max_tokens: int) -> SequencePart:
        """What it forwards in the next pass, with room reserved in the cache. Raises OverloadedError.

        A person gets the whole tree at once; a prefetch, which a person may wait for, never more than `max_tokens`.
        """
        cache, chain_ids = self.sequence.cache, self.tree.chain_ids
        is_prefetch = self.job.request.is_prefetch
        if len(chain_ids) > max_tokens:
            part = SequencePart(cache, TokenTree(chain_ids[:max_tokens]), wants_logits=False)
        elif is_prefetch and chain_ids and self.tree.num_tokens > max_tokens:
            part = SequencePart(cache, TokenTree(chain_ids))
        elif chain_ids:
            part = SequencePart(cache, self._add_draft())
        else:
            part = self.sequence.build_part(self.tree, self.missing[: max_tokens if is_prefetch else None])
        cache.reserve(part.tree.num_tokens)
        return part

    def absorb(self, part: SequencePart, rows: Sequence[LogitRow], max_row_bytes: int) -> None:
        """Keeps what a pass has computed."""
        num_own = self.tree.num_tokens
        self.sequence.absorb(part, rows, num_own)
        self.sequence.drop_rows(max_row_bytes, part.tree.num_tokens + num_own)  # a draft is not in the own tree
        num_forwarded = len(part.tree.chain_ids)
        self.tree = self.tree.with_chain(self.tree.chain_ids[num_forwarded:])
        if self.candidate is None:
            self.job.num_to_prefill = len(self.tree.chain_ids)
            self.job.costs.num_first_tokens += part.num_new_tokens

    def _add_draft(self) -> TokenTree:
        """The tree, with a guess of what follows if it is a generated token."""
        tree, candidate = self.tree, self.candidate
        if candidate is None or tree.branch_ids:
            return tree
        room = self.job.max_cached_tokens - self.sequence.num_tokens - len(tree.chain_ids)
        draft_ids = propose([*self.sequence.token_ids, *tree.chain_ids], self._token_cost)
        draft_ids = draft_ids[: max(min(room, _count_line(candidate, draft_ids)), 0)]
        if not draft_ids:
            return tree
        self._draft_ids = draft_ids
        self.job.costs.num_drafted += len(draft_ids)
        return TokenTree(tree.chain_ids, draft_ids, (None, *range(len(draft_ids) - 1)))


def _count_line(candidate: Candidate, token_ids: tuple[int, ...]) -> int:
    """How many of the tokens belong to the line, if the candidate ends there; else all."""
    if not isinstance(candidate.text.limits.extent, LineRule):
        return len(token_ids)
    token_bytes = candidate.vocabulary.token_bytes
    ends = (count for count, token_id in enumerate(token_ids, 1) if b"\n" in token_bytes[token_id])
    return next(ends, len(token_ids))


def propose(token_ids: Sequence[int], token_cost: float) -> tuple[int, ...]:
    """Returns the guess of what follows the tokens; empty if nothing matches. `token_cost`: see `LanguageModel`.

    It follows the latest of the longest places where the last tokens occur earlier.
    """
    if token_cost > _MAX_TOKEN_COST:
        return ()
    text = array("I", token_ids).tobytes().decode("utf-32-le", "surrogatepass")  # a character for each: quick to search
    for num_matching in range(min(_MAX_MATCH, len(text) - 1), _MIN_MATCH - 1, -1):
        at = text.rfind(text[-num_matching:], 0, len(text) - 1)
        if at >= 0:
            end = at + num_matching
            return tuple(token_ids[end : end + min(num_matching + 1, MAX_DRAFT_TOKENS)])
    return ()

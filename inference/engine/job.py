"""A request inside the engine, from its arrival to its end, and its candidates.

A job arrives as a request and a sink. When its turn may come, it gets its prompt: most requests are superseded before.
When it begins, it gets a sequence of the model's cache, which belongs to its first candidate. With the first choice
the candidates part, and each has a sequence of its own.
"""

import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from inference.config import MIN_PROMPT_TOKENS
from inference.engine.answer import Answer, build_limits
from inference.engine.drafts import Draft, Drafter
from inference.engine.explanation import build_explanation
from inference.engine.prompt import Prompt, PromptBuilder
from inference.engine.scheduler import PrefillSpeed
from inference.engine.sink import ChunkSink
from inference.engine.stopping import LineRule
from inference.errors import InvalidRequestError, as_failure
from inference.healing.covering import Crossing, Rule
from inference.healing.token_tree import TokenTree
from inference.model.language_model import (
    Choice,
    LanguageModel,
    LogitRow,
    Part,
    RandomSource,
    SampleRequest,
    SampleResult,
    Sampling,
)
from inference.model.token_sequence import TokenSequence
from inference.protocol.completion import (
    CompletionChunk,
    CompletionRequest,
    CompletionStats,
    Explanation,
    FinishReason,
)
from trie_cache.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class EngineParts:
    """What all jobs of an engine use."""

    model: LanguageModel
    prompts: PromptBuilder
    max_context_tokens: int
    clock: Callable[[], float]  # seconds
    drafter: Drafter | None = None  # None: no drafts
    speed: PrefillSpeed = field(default_factory=PrefillSpeed)
    find_row_bytes: Callable[[], int] = lambda: sys.maxsize  # for the logits of each running sequence
    is_shared: Callable[[], bool] = lambda: False  # whether more than one person waits

    @property
    def vocabulary(self) -> Vocabulary:
        """The model's tokens."""
        return self.prompts.tokenizer.vocabulary


@dataclass(slots=True, eq=False)
class Job:
    """A request that the engine has accepted."""

    request: CompletionRequest
    sink: ChunkSink
    parts: EngineParts
    submitted_at: float  # this and other times are in seconds of the engine's clock
    is_ahead: bool = False  # see `PromptBuilder.build`; of a prefetch that nobody sent, after one that is finished
    prompt: Prompt = field(init=False)  # not before it is prepared
    is_prepared: bool = False
    candidates: "list[Candidate]" = field(default_factory=list)  # none until it begins; one until the first choice
    random_sources: tuple[RandomSource | None, ...] = ()  # one for each candidate
    costs: CompletionStats = field(default_factory=CompletionStats)
    num_prefill_forwards: int = 0  # passes over a piece of a long context, which choose no token
    num_step_rows: int = 0  # that were forwarded in the last step
    work: float = 0.0  # as the scheduler counts it
    num_remembered: int = 0  # of its context's tokens, before it begins
    will_be_late: bool = False
    explanation: Explanation | None = None
    failure: BaseException | None = None  # why it cannot continue

    @property
    def max_cached_tokens(self) -> int:
        """The most tokens in one sequence's cache: all branches in the first step, only the chosen ones later."""
        num_later = self.prompt.num_spelling_tokens + self.request.max_tokens
        return len(self.prompt.context_ids) + max(len(self.prompt.tree.branch_ids), num_later)

    @property
    def num_tokens(self) -> int:
        """The token capacity of its caches, all sequences together."""
        return self.request.num_candidates * self.max_cached_tokens

    @property
    def num_to_prefill(self) -> int:
        """The context tokens to forward before its first token; 0 before there is a prompt."""
        if not self.is_prepared:
            return 0
        if not self.candidates:
            return len(self.prompt.context_ids) - self.num_remembered
        first = self.candidates[0]
        return 0 if first.token_ids else len(first.tree.chain_ids)

    @property
    def is_begun(self) -> bool:
        """True once it has a sequence."""
        return bool(self.candidates)

    @property
    def is_finished(self) -> bool:
        """True when every candidate has ended, once there are any."""
        return bool(self.candidates) and all(candidate.answer.finish_reason for candidate in self.candidates)

    def is_late(self, now: float) -> bool:
        """True if its deadline has passed at that time."""
        deadline_ms = self.request.deadline_ms
        return deadline_ms is not None and self._measure_ms(now) >= deadline_ms

    @contextmanager
    def recording_failure(self) -> Iterator[None]:
        """Records an exception raised inside the context as the failure of this job only."""
        try:
            yield
        except BaseException as error:
            self.failure = self.failure or as_failure(error)

    def prepare(self) -> None:
        """Builds the prompt. Raises InvalidRequestError if the request does not fit in the model's window."""
        started_at = self.parts.clock()
        self.prompt = self.parts.prompts.build(self.request, self._find_prompt_room(), self.is_ahead)
        self.random_sources = self._build_random_sources()
        self.costs.num_context_tokens = len(self.prompt.context_ids)
        self.costs.num_tree_nodes = 1 + len(self.prompt.tree.branch_ids)
        self.costs.prompt_ms = 1e3 * (self.parts.clock() - started_at)
        self.is_prepared = True

    def begin(self, sequence: TokenSequence) -> None:
        """Gives the first candidate its sequence. Raises OverloadedError."""
        self.costs.queue_ms = self._measure_ms(self.parts.clock())
        answer = Answer(build_limits(self.request, self.prompt.reads_suffix), len(self.prompt.healed))
        first = Candidate(self, 0, sequence, self.prompt.tree, self.prompt.covering.crossings, answer)
        self.candidates = [first]
        first.tree = first.tree.with_chain(sequence.begin(self.prompt.context_ids))

    def part_candidates(self, choices: tuple[Choice, ...]) -> "list[Candidate]":
        """Gives each of the first choices a candidate. They differ from now on. Raises OverloadedError."""
        [first] = self.candidates
        sequences = [first.sequence, *(first.sequence.fork() for _ in choices[1:])]
        parted = []
        for index, (sequence, choice) in enumerate(zip(sequences, choices, strict=True)):
            answer = Answer(first.answer.limits, len(self.prompt.healed))
            parted.append(Candidate(self, index, sequence, first.tree, first.crossings, answer))
            parted[-1].take(choice)
        self.candidates = parted
        return self.find_active()

    def find_active(self) -> "list[Candidate]":
        """The candidates that have not ended; none if the job has failed."""
        if self.failure is not None:
            return []
        return [candidate for candidate in self.candidates if not candidate.answer.finish_reason]

    def note_choice(self, candidate: "Candidate", result: SampleResult) -> None:
        """Counts a choice that is certain, and explains the first one if that is asked for."""
        costs = self.costs
        if self.prompt.healed and (not candidate.token_ids or candidate.crossings[0].remaining_bytes):
            costs.num_healing_forwards = costs.num_forwards - self.num_prefill_forwards
        if self.request.explain and self.explanation is None:
            self.explanation = build_explanation(self.parts.prompts.tokenizer, self.prompt, result)

    def end(self, reason: FinishReason, now: float) -> None:
        """Ends the job before it is complete, and sends what was generated."""
        for candidate in self.candidates:
            candidate.answer.finish(reason)
        if self.candidates:
            self.send_ready(now)
        else:
            self.costs.queue_ms = self.costs.first_chunk_ms = self._measure_ms(now)
            self.sink.send(CompletionChunk("", finish_reason=reason, stats=self._build_stats(now)))

    def send_ready(self, now: float) -> None:
        """Sends the text that is ready and, when all candidates have ended, the last chunk with the stats."""
        taken = [(each, each.answer.take_text()) for each in self.candidates]
        ready = [(each, text) for each, text in taken if text or each.answer.owes_last]
        for number, (candidate, text) in enumerate(ready, 1):
            is_last = self.is_finished and number == len(ready)
            self.costs.first_chunk_ms = self.costs.first_chunk_ms or self._measure_ms(now)
            reason = candidate.answer.finish_reason
            candidate.answer.has_sent_last = reason is not None
            ends = candidate.answer.take_ends(text)
            self.sink.send(
                CompletionChunk(
                    text,
                    candidate=candidate.index,
                    text_ends=(*ends.keys(),),
                    log_probs=(*ends.values(),),
                    healed_bytes=self.prompt.num_healed_bytes,
                    finish_reason=reason,
                    stats=self._build_stats(now) if is_last else None,
                    explanation=self.explanation if is_last else None,
                )
            )

    def _find_prompt_room(self) -> int:
        """The number of tokens available for the prompt and the generated healed bytes together."""
        room = self.parts.model.max_tokens - self.request.max_tokens
        if room < MIN_PROMPT_TOKENS:
            raise InvalidRequestError(
                f"max_tokens is {self.request.max_tokens}; the model sees {self.parts.model.max_tokens} tokens in all, "
                f"and {MIN_PROMPT_TOKENS} of them at least are for the prompt"
            )
        return min(room, self.parts.max_context_tokens)

    def _build_random_sources(self) -> tuple[RandomSource | None, ...]:
        request = self.request
        if request.temperature == 0.0:
            return (None,) * request.num_candidates
        return tuple(
            self.parts.model.new_random_source(None if request.seed is None else (request.seed + index) % 2**63)
            for index in range(request.num_candidates)
        )

    def _build_stats(self, now: float) -> CompletionStats:
        num_tokens = sum(len(candidate.token_ids) for candidate in self.candidates)
        return dataclasses.replace(self.costs, total_ms=self._measure_ms(now), num_tokens=num_tokens)

    def _measure_ms(self, now: float) -> float:
        """The milliseconds since it arrived."""
        return 1e3 * (now - self.submitted_at)


@dataclass(slots=True, eq=False)
class Candidate:
    """One of a request's completions: its tokens in the model's cache, those to forward next, and its text."""

    job: Job
    index: int
    sequence: TokenSequence
    tree: TokenTree  # the tokens to forward next; no chain once its tokens are in the sequence
    crossings: tuple[Crossing, ...]  # the nodes of `tree` that the next token may follow
    answer: Answer
    missing: tuple[int, ...] = ()  # branches of `tree` to forward before the next choice
    draft: Draft | None = None  # as long as it is right
    token_ids: list[int] = field(default_factory=list)

    def prepare_choice(self) -> SampleRequest | None:
        """The request for the next choice; None if the model must forward something before it.

        Tokens that were forwarded earlier are moved into the sequence. The first choice of a job is for all its
        candidates together. Raises OverloadedError.
        """
        new_ids, rows = self.sequence.append_known(self.tree.chain_ids), []
        if not new_ids:
            rows = self.sequence.recall_rows(self.tree)
            if rows[0] is None:  # the logits at the end were dropped
                new_ids = (self.sequence.token_ids[-1],)
                self.sequence.cut(self.sequence.num_tokens - 1)
        self.tree = self.tree.with_chain(new_ids)
        self.missing = tuple([branch for branch in self.missing if new_ids or rows[branch + 1] is None])
        if new_ids or self.missing:
            return None
        job, is_first = self.job, not self.token_ids
        return SampleRequest(
            self.tree,
            self.crossings,
            rows,
            Sampling(job.request.temperature, job.request.top_p),
            job.random_sources if is_first else (job.random_sources[self.index],),
            wants_scores=is_first and job.request.explain,
        )

    def advance(self, result: SampleResult) -> "list[Candidate]":
        """Takes a choice, if it is certain. Returns the candidates that may choose again. Raises OverloadedError."""
        if result.missing:
            self.missing = result.missing
            return [self]
        if self.job.request.is_prefetch:
            self.answer.finish(FinishReason.READ)
            return []
        self.job.note_choice(self, result)
        if len(result.choices) > 1:
            return self.job.part_candidates(result.choices)
        self.take(result.choices[0])
        return [] if self.answer.finish_reason else [self]

    def take(self, choice: Choice) -> None:
        """Adds the path to the crossing and the token that was chosen there."""
        vocabulary, tree = self.job.parts.vocabulary, self.tree
        path = tuple(tree.branch_ids[branch] for branch in tree.find_path(choice.crossing.node))
        new_ids = (*self.sequence.append_known(path), choice.token_id)  # a path may lack its keys and values
        token_bytes = vocabulary.token_bytes
        self.answer.skip_healed(sum(len(token_bytes[token_id]) for token_id in path))
        self.token_ids += path
        if choice.token_id in vocabulary.special_ids:
            self.answer.finish(FinishReason.END)
        else:
            self._add_token(choice, token_bytes[choice.token_id])
            self.tree = TokenTree(new_ids)
        self._compare_draft(choice.token_id)

    def build_part(self) -> Part:
        """What it forwards in the next pass, with room reserved in the cache. Raises OverloadedError."""
        cache, chain_ids = self.sequence.cache, self.tree.chain_ids
        max_rows = self.job.parts.speed.find_max_rows(self.job.request.is_prefetch, self.job.parts.is_shared())
        if len(chain_ids) > max_rows:
            part = Part(cache, TokenTree(chain_ids[:max_rows]), wants_logits=False)
        elif chain_ids:
            part = Part(cache, self._add_draft())
        else:
            part = self.sequence.build_part(self.tree, self.missing)
        cache.reserve(part.tree.num_rows)
        return part

    def absorb(self, part: Part, rows: Sequence[LogitRow]) -> None:
        """Keeps what a pass has computed."""
        self.sequence.absorb(part, rows)
        num_needed = part.tree.num_rows + self.tree.num_rows  # with a draft, which is not in the own tree
        self.sequence.drop_rows(self.job.parts.find_row_bytes(), num_needed)
        num_forwarded = len(part.tree.chain_ids)
        self.tree = self.tree.with_chain(self.tree.chain_ids[num_forwarded:])
        self.job.num_step_rows += part.num_new_rows
        self.job.num_prefill_forwards += not part.wants_logits
        if not self.token_ids:
            self.job.costs.num_read_tokens += num_forwarded
            self.job.costs.num_first_rows += part.num_new_rows

    def _add_token(self, choice: Choice, token_bytes: bytes) -> None:
        crossing = choice.crossing
        remaining_bytes = crossing.remaining_bytes[len(token_bytes) :]
        self.token_ids.append(choice.token_id)
        self.crossings = (Crossing(None, remaining_bytes, crossing.rule if remaining_bytes else Rule.EXTEND),)
        self.answer.add(token_bytes, len(token_bytes) > len(crossing.remaining_bytes), choice.log_prob)

    def _add_draft(self) -> TokenTree:
        """The tree, with a guess of what follows if it is a generated token."""
        tree, drafter = self.tree, self.job.parts.drafter
        if drafter is None or not self.token_ids or tree.branch_ids:
            return tree
        room = self.job.max_cached_tokens - self.sequence.num_tokens - len(tree.chain_ids)
        draft = drafter.propose([*self.sequence.token_ids, *tree.chain_ids])
        if draft is None or room <= 0:
            return tree
        draft.token_ids = draft.token_ids[: min(room, self._count_line(draft.token_ids))]
        self.draft = draft
        self.job.costs.num_drafted += len(draft.token_ids)
        return TokenTree(tree.chain_ids, draft.token_ids, (None, *range(len(draft.token_ids) - 1)))

    def _count_line(self, token_ids: tuple[int, ...]) -> int:
        """How many of the tokens belong to the line, if the candidate ends there; else all."""
        if not isinstance(self.answer.limits.extent, LineRule):
            return len(token_ids)
        token_bytes = self.job.parts.vocabulary.token_bytes
        ends = (count for count, token_id in enumerate(token_ids, 1) if b"\n" in token_bytes[token_id])
        return next(ends, len(token_ids))

    def _compare_draft(self, token_id: int) -> None:
        """Compares the token that was chosen with the guess."""
        draft = self.draft
        if draft is None:
            return
        is_right = draft.follow(token_id)
        self.job.costs.num_accepted += is_right
        if not is_right or self.answer.finish_reason:
            draft.drafter.learn(draft)
            self.draft = None

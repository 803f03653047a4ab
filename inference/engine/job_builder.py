"""Builds jobs from requests: the prompt, the limits and the required cache size."""

from collections.abc import Callable
from dataclasses import dataclass

from inference.config import MIN_PROMPT_TOKENS
from inference.engine.candidate import Candidate, Detokenizer, Limits
from inference.engine.job import Counters, Job
from inference.engine.prompt import Prompt, PromptBuilder
from inference.engine.stopping import build_extent_rule
from inference.engine.suffix_rule import build_suffix_rule
from inference.engine.ticket import Ticket
from inference.errors import InvalidRequestError
from inference.healing.token_tree import TokenTree
from inference.model.language_model import LanguageModel, RandomSource
from inference.protocol.completion import CompletionRequest


@dataclass(frozen=True, slots=True)
class JobBuilder:
    """Builds jobs for one model."""

    max_context_tokens: int
    model: LanguageModel
    prompts: PromptBuilder
    clock: Callable[[], float]

    def build(self, ticket: Ticket) -> Job:
        """The request as a job. Raises InvalidRequestError if it does not fit in the model's window."""
        request, started_at = ticket.request, self.clock()
        prompt = self.prompts.build(request, self._find_prompt_room(request))
        tree = prompt.covering.build_tree(prompt.context_ids)
        extent = build_extent_rule(request.extent, request.prefix, request.suffix)
        suffix = build_suffix_rule(request.prefix, request.suffix)
        line_before = request.prefix[request.prefix.rfind("\n") + 1 :]
        limits = Limits(request.max_tokens, request.stop, extent, suffix, prompt.reads_suffix, line_before)
        first = Candidate(0, tree, prompt.covering.crossings, limits, Detokenizer(len(prompt.healed)))
        return Job(
            request=request,
            sink=ticket.sink,
            prompt=prompt,
            counters=Counters(
                ticket.submitted_at,
                num_context_tokens=len(prompt.context_ids),
                num_tree_nodes=1 + len(tree.branch_ids),
                prompt_s=self.clock() - started_at,
            ),
            max_cached_tokens=_count_cached_tokens(prompt, tree, request.max_tokens),
            candidates=[first],
            random_sources=self._build_random_sources(request),
        )

    def _find_prompt_room(self, request: CompletionRequest) -> int:
        """The number of tokens available for the prompt and the generated healed bytes together."""
        room = self.model.max_tokens - request.max_tokens
        if room < MIN_PROMPT_TOKENS:
            raise InvalidRequestError(
                f"max_tokens is {request.max_tokens}; the model sees {self.model.max_tokens} tokens in all, and "
                f"{MIN_PROMPT_TOKENS} of them at least are for the prompt"
            )
        return min(room, self.max_context_tokens)

    def _build_random_sources(self, request: CompletionRequest) -> tuple[RandomSource | None, ...]:
        if request.temperature == 0.0:
            return (None,) * request.num_candidates
        seed = request.seed
        return tuple(
            self.model.new_random_source(None if seed is None else (seed + index) % 2**63)
            for index in range(request.num_candidates)
        )


def _count_cached_tokens(prompt: Prompt, tree: TokenTree, max_tokens: int) -> int:
    """The most tokens in one sequence's cache: all branches in the first step, only the chosen ones later."""
    return len(prompt.context_ids) + max(len(tree.branch_ids), prompt.num_spelling_tokens + max_tokens)

"""One of a request's completions, as far as it has come."""

from dataclasses import dataclass, field

from inference.engine.candidate_text import CandidateText
from inference.healing.covering import Crossing, Rule
from inference.model.sampler import Choice
from inference.protocol.completion import FinishReason
from trie_cache.vocabulary import Vocabulary


@dataclass(slots=True, eq=False)
class Candidate:
    """The tokens and the text of one completion."""

    index: int
    answer: CandidateText
    vocabulary: Vocabulary
    crossings: tuple[Crossing, ...]  # the nodes that the next token may follow
    token_ids: list[int] = field(default_factory=list)

    @property
    def is_finished(self) -> bool:
        """True when it gets no more tokens."""
        return self.answer.finish_reason is not None

    def take(self, path: tuple[int, ...], choice: Choice) -> None:
        """Adds the tokens on the path to the crossing, and the token that was chosen there."""
        token_bytes = self.vocabulary.token_bytes
        self.answer.skip_healed(sum(len(token_bytes[token_id]) for token_id in path))
        self.token_ids += path
        if choice.token_id in self.vocabulary.special_ids:
            self.answer.finish(FinishReason.END)
        else:
            self._add(choice, token_bytes[choice.token_id])

    def _add(self, choice: Choice, token_bytes: bytes) -> None:
        crossing = choice.crossing
        remaining_bytes = crossing.remaining_bytes[len(token_bytes) :]
        self.token_ids.append(choice.token_id)
        self.crossings = (Crossing(None, remaining_bytes, crossing.rule if remaining_bytes else Rule.EXTEND),)
        self.answer.add(token_bytes, len(token_bytes) > len(crossing.remaining_bytes), choice.log_prob)

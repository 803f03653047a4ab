"""One generation of the model, and what its text answers: later requests in the same text, without asking again."""

import asyncio
import enum
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from inference.brackets import CLOSERS, QUOTES
from inference.protocol.completion import CompletionChunk, CompletionRequest, FinishReason
from lsp_server.no_suggestion import NoSuggestion
from lsp_server.privacy.guard import Cleared
from lsp_server.settings import Settings


@dataclass(frozen=True, slots=True)
class Question:
    """A request of the editor: the text around its cursor as it is, and the settings.

    The text that is sent may differ: text of other files may stand in it, and secrets are replaced.
    """

    prefix: str
    suffix: str
    settings: Settings
    # Returns what to send, or why nothing is sent: also if a newer request or an edit came meanwhile.
    build_request: Callable[[], Awaitable[Cleared[CompletionRequest] | NoSuggestion]] = field(compare=False)


_CUTS = (FinishReason.DEADLINE, FinishReason.CANCELLED, FinishReason.SUPERSEDED)


class NoAnswer(enum.Enum):
    """Why a generation has no answer to a question."""

    PENDING = enum.auto()  # the generation agrees with the question, and more text is to come
    MISMATCH = enum.auto()  # the generation cannot answer this question


@dataclass(slots=True, eq=False)
class Generation:
    """The text that the model generates for a question, as far as it has arrived."""

    question: Question
    task: asyncio.Task[None] | None = None
    text: str = ""
    is_finished: bool = False
    finish_reason: FinishReason | None = None  # None also where the stream ended without one
    failure: NoSuggestion | None = None  # why it ended early

    def add(self, chunk: CompletionChunk) -> None:
        """Adds a chunk of the first candidate."""
        if chunk.candidate == 0:
            self.text += chunk.text
            self.finish_reason = chunk.finish_reason or self.finish_reason
            self.is_finished = self.finish_reason is not None

    def find_answer(self, question: Question) -> str | NoAnswer:
        """Returns the text that is left to insert for a question, which may be newer than the generation's own.

        While more text is to come, the answer consists of whole lines.
        """
        if self._is_dead or question.settings != self.question.settings:
            return NoAnswer.MISMATCH
        prefix, suffix = self.question.prefix, self.question.suffix
        if not question.prefix.startswith(prefix) or not _differ_by_closers(question.suffix, suffix):
            return NoAnswer.MISMATCH
        if self.finish_reason is FinishReason.SUFFIX and len(question.suffix) < len(suffix):
            return NoAnswer.MISMATCH  # closers were deleted, which the text lacks
        typed = question.prefix[len(prefix) :]
        if not self.text.startswith(typed):
            is_behind = not self.is_finished and self.text != "" and typed.startswith(self.text)
            return NoAnswer.PENDING if is_behind else NoAnswer.MISMATCH
        remaining = self.text[len(typed) :]
        if self.is_finished:
            all_accepted = typed != "" and not remaining.strip()  # the next text needs a new generation
            return NoAnswer.MISMATCH if all_accepted else remaining
        whole_lines = remaining.rpartition("\n")[0]
        return whole_lines if whole_lines.strip() else NoAnswer.PENDING

    @property
    def says_nothing(self) -> bool:
        """True if it ended before it had any text. It answers its own question, and no later one."""
        return self.finish_reason in _CUTS and not self.text.strip()

    @property
    def _is_dead(self) -> bool:
        """True if the task ended before the text was complete. The session's callback runs a moment later."""
        return not self.is_finished and self.task is not None and self.task.done()


def _differ_by_closers(suffix: str, other: str) -> bool:
    """True if the texts are equal except for closers at the start of one, which editors insert and overtype."""
    shorter, longer = sorted((suffix, other), key=len)
    return longer.endswith(shorter) and all(char in {*CLOSERS, *QUOTES} for char in longer.removesuffix(shorter))

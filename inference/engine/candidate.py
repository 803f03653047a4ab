"""The state of one candidate between steps: the tokens to forward next, its text so far, and why it ended."""

import codecs
from dataclasses import dataclass, field

from inference.engine.drafts import Draft
from inference.engine.loop_rule import LoopRule
from inference.engine.stopping import BlockRule, LineRule, count_stable, find_stop
from inference.engine.suffix_rule import Ending, SuffixRule
from inference.healing.covering import Crossing, Rule
from inference.healing.token_tree import TokenTree
from inference.protocol.completion import Chunks, FinishReason

_REPLACED_REASONS = (FinishReason.END, FinishReason.EXTENT, FinishReason.STOP, FinishReason.LOOP, FinishReason.LENGTH)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits that end a candidate, in addition to the model's end token."""

    max_tokens: int  # without the tokens that spell only healed bytes
    stops: tuple[str, ...]
    extent: LineRule | BlockRule
    suffix: SuffixRule | None = None
    reads_suffix: bool = False  # whether the model read it, and so knows where to end
    line_before: str = ""  # the cursor's line up to the cursor


class Detokenizer:
    """Decodes UTF-8 incrementally, and drops the healed bytes at the beginning."""

    def __init__(self, num_healed_bytes: int) -> None:
        self._num_to_drop = num_healed_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def add(self, token_bytes: bytes) -> str:
        """The text that `token_bytes` completes. An incomplete code point is buffered until the next call."""
        dropped = min(self._num_to_drop, len(token_bytes))
        self._num_to_drop -= dropped
        return self._decoder.decode(token_bytes[dropped:])


@dataclass(slots=True)
class Candidate:
    """One candidate's state between steps. Its keys and values are in `Job.sequences`."""

    index: int
    tree: TokenTree  # the tokens to forward next; no chain once its tokens are read
    crossings: tuple[Crossing, ...]  # the nodes of `tree` that the next token may follow
    limits: Limits
    detokenizer: Detokenizer
    needed: tuple[int, ...] = ()  # branches of `tree` to read before the next choice
    draft: Draft | None = None  # as long as it is right
    token_ids: list[int] = field(default_factory=list)
    num_new: int = 0  # how many of `token_ids` go beyond the healed bytes
    text: str = ""
    num_sent: int = 0  # sent characters of `text`
    num_passed: int = 0  # characters of `text` in which no suffix begins, however it goes on
    finish_reason: FinishReason | None = None
    has_sent_last: bool = False  # whether its last chunk was sent
    loop: LoopRule = field(init=False)

    def __post_init__(self) -> None:
        self.loop = LoopRule(self.limits.line_before)

    def accept_path(self, token_ids: tuple[int, ...], token_bytes: bytes) -> None:
        """Adds the tokens of the chosen path, which spell only healed bytes."""
        self.token_ids += token_ids
        self.detokenizer.add(token_bytes)

    def accept_token(self, crossing: Crossing, token_id: int, token_bytes: bytes) -> None:
        """Adds the token chosen at `crossing`, and sets the tree to forward next."""
        self.token_ids.append(token_id)
        self.num_new += len(token_bytes) > len(crossing.remaining_bytes)
        remaining_bytes = crossing.remaining_bytes[len(token_bytes) :]
        self.tree = TokenTree((token_id,))
        self.crossings = (Crossing(None, remaining_bytes, crossing.rule if remaining_bytes else Rule.EXTEND),)
        added = self.detokenizer.add(token_bytes)
        self.text += added
        self._find_end(added)

    def finish(self, reason: FinishReason) -> None:
        """Ends the candidate, before the suffix if the text has reached it. Only the first call has an effect."""
        if self.finish_reason is not None:
            return
        self.finish_reason = reason
        was_chosen = reason is FinishReason.END and self.limits.reads_suffix
        if self._cut_suffix(Ending.CHOSEN if was_chosen else Ending.LIMITED) and reason in _REPLACED_REASONS:
            self.finish_reason = FinishReason.SUFFIX

    def take_text(self, chunks: Chunks) -> str:
        """The text to send now. The remaining text is sent at the end."""
        if self.finish_reason:
            ready = len(self.text)
        else:
            ready = self._count_settled() if chunks is Chunks.TOKENS else self._count_first_line()
        taken = self.text[self.num_sent : ready]
        self.num_sent = max(self.num_sent, ready)
        return taken

    def _find_end(self, added: str) -> None:
        stop = find_stop(self.text, self.limits.stops, len(added))
        line_start = self.text.rfind("\n", 0, len(self.text) - len(added)) + 1  # the lines before it did not end it
        end = self.limits.extent.find_end(self.text, line_start)
        loop = self.loop.add(added)
        if stop is not None and (end is None or stop <= end):
            self.text = self.text[:stop]
            self.finish(FinishReason.STOP)
        elif end is not None:
            self.text = self.text[:end]
            self.finish(FinishReason.EXTENT)
        elif "\n" in added and self._reaches_suffix():
            self.finish_reason = FinishReason.SUFFIX
        elif loop is not None:
            self.text = self.text[:loop]
            self.finish(FinishReason.LOOP)
        elif self.num_new >= self.limits.max_tokens:
            self.finish(FinishReason.LENGTH)

    def _reaches_suffix(self) -> bool:
        """Cuts the text before the suffix, if it has reached it for certain. Searches the new lines only."""
        if self._cut_suffix(Ending.OPEN):
            return True
        if self.limits.suffix is not None:
            self.num_passed = self.limits.suffix.count_passed(self._find_stable_text(), self.num_passed)
        return False

    def _cut_suffix(self, ending: Ending) -> bool:
        """Cuts the text before the suffix, if it has reached it."""
        rule = self.limits.suffix
        at = None if rule is None else rule.find_end(self.text, ending, self.num_passed)
        if at is None:
            return False
        self.text = self.text[:at]
        return True

    def _count_first_line(self) -> int:
        """The first line that is not blank, if it is complete and not sent yet."""
        line_end = -1
        if not self.num_sent and "\n" in self.text:
            line_end = self.text.find("\n", len(self.text) - len(self.text.lstrip()))
        if line_end < 0:
            return 0
        ready = len(self.text[:line_end].rstrip())  # without trailing blanks, which are cut if the block ends here
        return ready if ready <= self._count_settled() else 0

    def _count_settled(self) -> int:
        """How many of the first characters stay, however the text goes on."""
        settled = self.limits.extent.count_settled(self.text)
        stable = self._find_stable_text()
        rule = self.limits.suffix
        return min(settled, len(stable) if rule is None else rule.count_settled(stable, self.num_passed))

    def _find_stable_text(self) -> str:
        """The text without what a stop string or a loop may still take away."""
        return self.text[: min(count_stable(self.text, self.limits.stops), self.loop.count_settled())]

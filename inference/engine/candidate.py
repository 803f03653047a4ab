"""One of a request's completions: its tokens, its text in whole code points, and where it ends."""

import codecs
import math
from dataclasses import dataclass, field

from inference.engine.loop_rule import LoopRule
from inference.engine.stopping import BlockRule, LineRule, build_extent_rule, count_stable, find_stop
from inference.engine.suffix_rule import LineRemainderRule, SuffixRule, build_suffix_rule
from inference.healing.covering import Crossing, Rule
from inference.model.sampler import SampledToken
from inference.protocol.completion import Chunks, CompletionRequest, FinishReason
from trie_cache.trie import Vocabulary

_ROUNDING = 1e-3  # of a log probability
_RESERVE = 0.5  # of `min_probability`: text with less is generated, too, because typing reveals it

# Reasons that say less than that the text reached the suffix.
_REPLACED_REASONS = (FinishReason.END, FinishReason.EXTENT, FinishReason.STOP, FinishReason.LOOP, FinishReason.LENGTH)


@dataclass(frozen=True, slots=True)
class StopConditions:
    """What ends the completions of a request, besides the model's end token."""

    max_tokens: int  # without the tokens that spell only healed bytes
    stops: tuple[str, ...]
    extent: LineRule | BlockRule
    suffix: SuffixRule = field(default_factory=lambda: build_suffix_rule("", ""))
    reads_suffix: bool = False  # whether the model was given it, and so knows where to end
    prefix: str = ""
    sends_lines: bool = False  # see `Chunks.LINES`
    send_below_log_prob: float = -math.inf  # a text below it is sent before its line is complete, with `sends_lines`
    stop_below_log_prob: float = -math.inf  # a text ends below it


def build_stop_conditions(request: CompletionRequest, reads_suffix: bool) -> StopConditions:
    """The limits of a request. `reads_suffix`: whether the model reads the text after the cursor."""
    unlikely = math.log(request.min_probability) if request.min_probability > 0 else -math.inf
    sends_lines = request.chunks is Chunks.LINES
    return StopConditions(
        request.max_tokens,
        request.stop,
        build_extent_rule(request.extent, request.prefix, request.suffix, request.path),
        build_suffix_rule(request.prefix, request.suffix),
        reads_suffix,
        request.prefix,
        sends_lines,
        unlikely,
        unlikely + math.log(_RESERVE) * sends_lines,
    )


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a completion that is sent at once."""

    text: str
    ends: dict[int, float]  # where its tokens end, in characters, with `log_prob` of the whole text up to there
    finish_reason: FinishReason | None  # of the last piece


class CandidateText:
    """The text of one completion so far, and why it ended."""

    def __init__(self, limits: StopConditions, num_healed_bytes: int = 0) -> None:
        """`num_healed_bytes`: the first bytes, which were typed already and are no part of the text."""
        self.limits = limits
        self.text = ""
        self.log_prob = 0.0  # of the text, given what was typed
        self.finish_reason: FinishReason | None = None
        self._has_taken_last = False
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._num_to_drop = num_healed_bytes
        self._has_log_probs = True  # those of all tokens so far are known
        self.num_new = 0  # tokens that go beyond the healed bytes
        self._ends: list[tuple[int, float]] = []  # where tokens end, and `log_prob` there; those that are not sent
        self._num_sent = 0  # characters of `text`
        self._rest = LineRemainderRule(limits.suffix.line_before, limits.suffix.line_remainder)
        self._loop = LoopRule(limits.prefix)
        self._sends_lines = limits.sends_lines  # becomes false before a part of a line is sent

    def skip_healed(self, num_bytes: int) -> None:
        """Passes over healed bytes that were spelled by tokens of their own."""
        self._num_to_drop -= num_bytes

    def add(self, token_bytes: bytes, is_new: bool = True, log_prob: float | None = None) -> None:
        """Adds a token. `is_new`: it goes beyond the healed bytes, and so counts for the limit of tokens.

        The bytes of an incomplete code point wait for those that complete it. `log_prob`: the logarithm of its
        probability; None if it is not known, and from there on no probabilities are sent. If it is no probability, the
        text ends before the token.
        """
        if log_prob is not None and not log_prob <= _ROUNDING:
            self.finish(FinishReason.UNLIKELY)
            return
        dropped = min(self._num_to_drop, len(token_bytes))
        self._num_to_drop -= dropped
        self.num_new += is_new
        added = self._decoder.decode(token_bytes[dropped:])
        self.text += added
        self._has_log_probs &= log_prob is not None
        if log_prob is not None and self._has_log_probs:
            self.log_prob += min(log_prob, 0.0)
            self._ends.append((len(self.text), self.log_prob))
            self._sends_lines &= self.log_prob >= self.limits.send_below_log_prob
        self._apply_limits(added)

    def finish(self, reason: FinishReason) -> None:
        """Ends the completion, before the suffix if the text has reached it. Only the first call has an effect."""
        if self.finish_reason is not None:
            return
        self.finish_reason = reason
        if self._cut_suffix(is_chosen=reason is FinishReason.END) and reason in _REPLACED_REASONS:
            self.finish_reason = FinishReason.SUFFIX

    def pop_ready(self) -> Piece | None:
        """Returns what is to be sent now, once, if there is something. The remaining text is sent at the end."""
        text = self._take_text()
        if not text and (self.finish_reason is None or self._has_taken_last):
            return None
        self._has_taken_last = self.finish_reason is not None
        return Piece(text, self._take_ends(text), self.finish_reason)

    def _take_text(self) -> str:
        if self.finish_reason:
            ready = len(self.text)
        elif self.limits.sends_lines and (self._num_sent or self.log_prob >= self.limits.send_below_log_prob):
            ready = self._count_first_line()
        else:
            ready = self._count_settled()
        taken = self.text[self._num_sent : ready]
        self._num_sent = max(self._num_sent, ready)
        return taken

    def _take_ends(self, taken: str) -> dict[int, float]:
        """Where the tokens of a text that is taken end, in its characters, with `log_prob` up to there.

        A text that ends inside of a token is as likely as with the whole token, or more.
        """
        start, ends = self._num_sent - len(taken), dict[int, float]()
        for num_chars, log_prob in self._ends:
            end = min(num_chars, self._num_sent)
            if end > start:
                ends.setdefault(end - start, log_prob)
        self._ends = [each for each in self._ends if each[0] > self._num_sent]
        return ends

    def _apply_limits(self, added: str) -> None:
        """Ends the completion if the text that was added, or its length, does."""
        stop = find_stop(self.text, self.limits.stops, len(added))
        line_start = self.text.rfind("\n", 0, len(self.text) - len(added)) + 1  # the lines before it did not end it
        end = self.limits.extent.find_end(self.text, line_start)
        loop = self._loop.find_end(self.text, len(added), self._sends_lines)
        if stop is not None and (end is None or stop <= end):
            self.text = self.text[:stop]
            self.finish(FinishReason.STOP)
        elif end is not None:
            self.text = self.text[:end]
            self.finish(FinishReason.EXTENT)
        elif "\n" in added and self._cut_suffix(is_open=True):
            self.finish_reason = FinishReason.SUFFIX
        elif loop is not None:
            self.text = self.text[:loop]
            self.finish(FinishReason.LOOP)
        elif self.num_new >= self.limits.max_tokens:
            self.finish(FinishReason.LENGTH)
        elif self.log_prob < self.limits.stop_below_log_prob:
            self.finish(FinishReason.UNLIKELY)

    def _cut_suffix(self, is_open: bool = False, is_chosen: bool = False) -> bool:
        """Cuts the text before the suffix, if it has reached it. `is_open`: it may go on. `is_chosen`: by the model."""
        at = self.limits.suffix.find_end(self.text, is_open)
        if at is None and not is_open and not (is_chosen and self.limits.reads_suffix):
            at = self._rest.find_end(self.text)
        self.text = self.text[:at]
        return at is not None

    def _count_first_line(self) -> int:
        """The first line that is not blank, if it is complete and not sent yet."""
        line_end = self.text.find("\n", len(self.text) - len(self.text.lstrip()))
        if line_end < 0 or self._num_sent:
            return 0
        ready = len(self.text[:line_end].rstrip())  # without trailing blanks, which are cut if the block ends here
        return ready if ready <= self._count_settled() else 0

    def _count_settled(self) -> int:
        """How many of the first characters stay, however the text goes on."""
        limits, text = self.limits, self.text
        stable = text[: min(count_stable(text, limits.stops), self._loop.count_settled(text))]
        ends = (rule.count_settled(stable) for rule in (limits.suffix, self._rest))
        return min(limits.extent.count_settled(text), len(stable), *ends)


@dataclass(slots=True, eq=False)
class Candidate:
    """The tokens and the text of one completion."""

    index: int
    text: CandidateText
    vocabulary: Vocabulary
    crossings: tuple[Crossing, ...]  # the nodes that the next token may follow
    token_ids: list[int] = field(default_factory=list)

    @property
    def is_finished(self) -> bool:
        """True when it gets no more tokens."""
        return self.text.finish_reason is not None

    def accept(self, path: tuple[int, ...], choice: SampledToken) -> None:
        """Adds the tokens on the path to the crossing, and the token that was chosen there."""
        token_bytes, crossing = self.vocabulary.token_bytes, choice.crossing
        self.text.skip_healed(sum(len(token_bytes[token_id]) for token_id in path))
        self.token_ids += path
        if choice.token_id in self.vocabulary.special_ids:
            return self.text.finish(FinishReason.END)
        chosen = token_bytes[choice.token_id]
        remaining_bytes = crossing.remaining_bytes[len(chosen) :]
        self.token_ids.append(choice.token_id)
        self.crossings = (Crossing(None, remaining_bytes, crossing.rule if remaining_bytes else Rule.EXTEND),)
        self.text.add(chosen, len(chosen) > len(crossing.remaining_bytes), choice.log_prob)

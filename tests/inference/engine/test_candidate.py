import dataclasses
import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.engine.candidate import CandidateText, StopConditions
from inference.engine.stopping import BlockRule, LineRule
from inference.engine.suffix_rule import build_suffix_rule
from inference.protocol.completion import Chunks, FinishReason
from tests.support.toys import texts

_ENDLESS = BlockRule(0, closes=False)


def _limits(
    max_tokens: int = 100, stops: tuple[str, ...] = (), extent: LineRule | BlockRule = _ENDLESS
) -> StopConditions:
    return StopConditions(max_tokens, stops, extent)


_PIECES = ["a", " ", "  ", "\n", "\r\n", "é", "b:", ")", "}", "\n    ", " \n", "ab", "ba", "\n    a", "\n  b:\n    ab"]
_pieces = st.lists(st.sampled_from(_PIECES), max_size=14)
_repeated_pieces = st.lists(
    st.tuples(st.lists(st.sampled_from(_PIECES), max_size=4), st.integers(1, 5) | st.sampled_from([9, 90])), max_size=4
).map(lambda parts: [piece for unit, count in parts for piece in count * unit])
_tokens = st.tuples(_pieces | _repeated_pieces, st.integers(1, 3)).map(
    lambda drawn: _split("".join(drawn[0]), drawn[1])
)
_STOPS = ["ab", "a\n", ")", "b:a", "\n\n"]
_SUFFIXES = ["", ")", ")\nab\n", "\nb:\na", "\na\n\nab\n    a\nb:", "a\r\n", "\n    a\n    a", "}", "a)b", "  a"]
_bounds = st.builds(
    lambda max_tokens, stops, extent, around, reads_suffix: StopConditions(
        max_tokens, tuple(stops), extent, build_suffix_rule(*around), reads_suffix, around[0]
    ),
    st.integers(1, 40) | st.just(400),
    st.lists(st.sampled_from(_STOPS), max_size=2),
    st.sampled_from([LineRule(), BlockRule(0, False), BlockRule(1, True), BlockRule(4, False)]),
    st.tuples(st.sampled_from(["f(\n", "f(", "    "]), st.sampled_from(_SUFFIXES)),
    st.booleans(),
)


def _split(text: str, num_bytes: int) -> list[bytes]:
    data = text.encode()
    return [data[start : start + num_bytes] for start in range(0, len(data), num_bytes)]


_unlikely = st.just(-math.inf) | st.floats(-20, 0)  # each token has -1


def _take(answer: CandidateText) -> str:
    piece = answer.pop_ready()
    return "" if piece is None else piece.text


@settings(max_examples=10 * settings().max_examples)
@given(_tokens, _bounds, st.sampled_from(Chunks), st.sampled_from(FinishReason), _unlikely)
def test_streamed_pieces_joined_equal_the_text_sent_at_once(
    tokens: list[bytes], limits: StopConditions, chunks: Chunks, reason: FinishReason, unlikely: float
) -> None:
    limits = dataclasses.replace(limits, sends_lines=chunks is Chunks.LINES, send_below_log_prob=unlikely)
    streaming, at_once = CandidateText(limits), CandidateText(limits)
    streamed = []
    for token in tokens:
        if streaming.finish_reason:
            break
        streaming.add(token, log_prob=-1.0)
        at_once.add(token, log_prob=-1.0)
        streamed.append(_take(streaming))
    for answer in (streaming, at_once):
        answer.finish(reason)
    streamed.append(_take(streaming))

    assert "".join(streamed) == _take(at_once)
    assert chunks is Chunks.TOKENS or sum(map(bool, streamed)) <= 2


def _limits_before(suffix: str, prefix: str = "f(", stops: tuple[str, ...] = (), **others: Any) -> StopConditions:
    return StopConditions(100, stops, _ENDLESS, build_suffix_rule(prefix, suffix), **others)


@pytest.mark.parametrize(
    ("limits", "tokens", "reason", "text"),
    [
        pytest.param(_limits(stops=("END", "ND")), ["ab E", "ND cd"], FinishReason.STOP, "ab ", id="stop string"),
        pytest.param(
            _limits(stops=("c",), extent=LineRule()), ["ab\nc"], FinishReason.EXTENT, "ab", id="the earliest wins"
        ),
        pytest.param(_limits_before(")\n"), ["ab)", "\nmore"], FinishReason.SUFFIX, "ab", id="suffix"),
        pytest.param(
            _limits_before("\na\nb", "f(\n", ("c\nd",)),
            ["a\nc\n", "d"],
            FinishReason.SUFFIX,
            "",
            id="a stop string may bring back the suffix",
        ),
        pytest.param(
            dataclasses.replace(_limits(), prefix="x = "),
            ["1\n", *["x = 1\n"] * 3],
            FinishReason.LOOP,
            "1",
            id="loop",
        ),
        pytest.param(
            dataclasses.replace(_limits(), prefix="f(", sends_lines=True),
            ["aaaa, ", "aaaa, ", "aaaa, ", "aaaa, "],
            FinishReason.LOOP,
            "aaaa",
            id="a loop that cuts a line",
        ),
        pytest.param(
            dataclasses.replace(_limits_before("(a, 1)", "self.asse"), extent=LineRule()),
            ["rtEqual", "(a, 2)", "\n"],
            FinishReason.SUFFIX,
            "rtEqual",
            id="the rest of the line is replaced",
        ),
    ],
)
def test_a_rule_ends_the_text_with_the_last_token(
    limits: StopConditions, tokens: list[str], reason: FinishReason, text: str
) -> None:
    answer = CandidateText(limits)
    for token in tokens:
        assert not answer.finish_reason
        answer.add(token.encode())

    assert (answer.finish_reason, answer.text, _take(answer)) == (reason, text, text)


@pytest.mark.parametrize(
    ("reason", "reads_suffix", "kept", "text"),
    [
        (FinishReason.LENGTH, True, FinishReason.SUFFIX, "a"),
        (FinishReason.END, False, FinishReason.SUFFIX, "a"),
        (FinishReason.END, True, FinishReason.SUFFIX, "a"),
        (FinishReason.DEADLINE, True, FinishReason.DEADLINE, "a"),
        (FinishReason.CANCELLED, True, FinishReason.CANCELLED, "a"),
    ],
)
def test_however_it_ends_the_suffix_is_cut_and_the_first_reason_is_kept(
    reason: FinishReason, reads_suffix: bool, kept: FinishReason, text: str
) -> None:
    answer = CandidateText(_limits_before("\nb\n", reads_suffix=reads_suffix))
    answer.add(b"a\nb")

    answer.finish(reason)
    answer.finish(FinishReason.STOP)

    assert (answer.finish_reason, _take(answer)) == (kept, text)


@st.composite
def _cut_bytes(draw: st.DrawFn) -> list[bytes]:
    """Draws the bytes of a text, cut into pieces anywhere."""
    data = draw(texts).encode()
    ends = sorted({0, len(data), *draw(st.lists(st.integers(0, len(data)), max_size=8))})
    return [data[start:end] for start, end in pairwise(ends)]


@given(pieces=_cut_bytes(), num_healed=st.integers(0, 20))
def test_the_text_is_what_follows_the_healed_bytes_in_whole_code_points(pieces: list[bytes], num_healed: int) -> None:
    answer, added = CandidateText(_limits(), num_healed), b""
    for piece in (num_healed * b"x" + b"".join(pieces[:1]), *pieces[1:]):
        answer.add(piece)
        added += piece
        if answer.finish_reason:
            return
        assert answer.text == added[num_healed:].decode(errors="ignore")


_BLOCK = _limits(extent=BlockRule(1, closes=True))


@pytest.mark.parametrize(
    ("limits", "chunks", "tokens", "sent"),
    [
        pytest.param(_BLOCK, Chunks.TOKENS, [b"a", b" "], ["a", ""], id="blanks that end a block"),
        pytest.param(_BLOCK, Chunks.TOKENS, [b"a", b"\n", b"  b"], ["a", "", "\n  b"], id="an indented line"),
        pytest.param(_limits(stops=("bc",)), Chunks.TOKENS, [b"ab"], ["a"], id="a beginning of a stop string"),
        pytest.param(_limits(), Chunks.TOKENS, [b"a\n", b"a"], ["a", ""], id="a beginning of a loop"),
        pytest.param(_limits(), Chunks.TOKENS, [b"a\n", b"b"], ["a", "\nb"], id="no beginning of a loop"),
        pytest.param(_limits_before(")"), Chunks.TOKENS, [b"a)"], ["a"], id="a beginning of the suffix"),
        pytest.param(
            _limits_before("\nb:\na", "f(\n", ("ab",)),
            Chunks.TOKENS,
            [b"b:\n    a", b"b"],
            ["", ""],
            id="a stop string that may still end the text does not speak against the suffix",
        ),
        pytest.param(_limits(), Chunks.TOKENS, [b"a\xc3", b"\xa9"], ["a", "é"], id="half a code point"),
        pytest.param(_limits(), Chunks.TOKENS, [b"a\xffb"], ["a�b"], id="no UTF-8 is replaced"),
        pytest.param(
            _limits(),
            Chunks.LINES,
            [b"\n  a", b"b", b" \n", b"  c", b"\n"],
            ["", "", "\n  ab", "", ""],
            id="the first line is sent as soon as it is complete, the others at the end",
        ),
        pytest.param(_limits(stops=("b\nc",)), Chunks.LINES, [b"ab\n"], [""], id="lines: a stop string"),
        pytest.param(
            _limits_before("\na\nb\n", "x\n"), Chunks.LINES, [b"a\n", b"b", b"c\n"], ["", "", "a"], id="lines: suffix"
        ),
    ],
)
def test_text_waits_while_it_is_not_whole_or_a_rule_may_cut_it(
    limits: StopConditions, chunks: Chunks, tokens: list[bytes], sent: list[str]
) -> None:
    answer = CandidateText(dataclasses.replace(limits, sends_lines=chunks is Chunks.LINES))
    taken = []
    for token in tokens:
        answer.add(token)
        taken.append(_take(answer))

    assert taken == sent
    text = answer.text
    answer.finish(FinishReason.CANCELLED)
    assert "".join([*taken, _take(answer)]) == answer.text == text[: len(answer.text)]

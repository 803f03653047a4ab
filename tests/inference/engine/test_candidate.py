from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.engine.candidate import Candidate, Limits
from inference.engine.detokenizer import Detokenizer
from inference.engine.stopping import BlockRule, LineRule
from inference.engine.suffix_rule import build_suffix_rule
from inference.healing.covering import Crossing, Rule
from inference.healing.token_tree import TokenTree
from inference.protocol.completion import FinishReason

_ANY = Crossing(None, b"", Rule.EXTEND)
_ENDLESS = BlockRule(0, closes=False)


def _candidate(limits: Limits, num_healed_bytes: int = 0) -> Candidate:
    return Candidate(0, TokenTree((0,)), (_ANY,), limits, Detokenizer(num_healed_bytes))


def _limits(max_tokens: int = 100, stops: tuple[str, ...] = (), extent: LineRule | BlockRule = _ENDLESS) -> Limits:
    return Limits(max_tokens, stops, extent)


_pieces = st.lists(
    st.sampled_from(["a", " ", "  ", "\n", "\r\n", "é", "b:", ")", "}", "\n    ", " \n", "ab", "ba"]), max_size=14
)


@settings(max_examples=5 * settings().max_examples)
@given(
    pieces=_pieces,
    cut=st.integers(1, 3),
    max_tokens=st.integers(1, 40),
    stops=st.lists(st.sampled_from(["ab", "a\n", ")", "b:a", "\n\n"]), max_size=2),
    extent=st.sampled_from([LineRule(), BlockRule(0, False), BlockRule(1, True), BlockRule(4, False)]),
    suffix=st.sampled_from(["", ")", ")\nab\n", "\nb:\na", "\na\n\nab\n    a\nb:", "a\r\n", "\n    a\n    a", "}"]),
)
def test_streamed_pieces_joined_equal_the_text_sent_at_once(
    pieces: list[str], cut: int, max_tokens: int, stops: list[str], extent: LineRule | BlockRule, suffix: str
) -> None:
    data = "".join(pieces).encode()
    tokens = [data[start : start + cut] for start in range(0, len(data), cut)]
    limits = Limits(max_tokens, tuple(stops), extent, build_suffix_rule("f(\n", suffix))
    streaming, at_once = (_candidate(limits) for _ in range(2))
    streamed = []
    for token in tokens:
        if streaming.finish_reason:
            break
        streaming.accept_token(_ANY, 1, token)
        at_once.accept_token(_ANY, 1, token)
        streamed.append(streaming.take_text())
    for candidate in (streaming, at_once):
        candidate.finish(FinishReason.LENGTH)
    streamed.append(streaming.take_text())

    assert "".join(streamed) == at_once.take_text()
    assert sum(map(bool, streamed)) <= 2


def test_the_first_line_is_sent_as_soon_as_it_is_complete() -> None:
    candidate = _candidate(_limits())
    sent = []
    for token in (b"\n  a", b"b", b" \n", b"  c", b"\n"):
        candidate.accept_token(_ANY, 1, token)
        sent.append(candidate.take_text())
    candidate.finish(FinishReason.LENGTH)

    assert [*sent, candidate.take_text()] == ["", "", "\n  ab", "", "", " \n  c\n"]


def test_a_possible_beginning_of_a_stop_string_is_held_back() -> None:
    candidate = _candidate(_limits(stops=("b\nc",)))
    candidate.accept_token(_ANY, 1, b"ab\n")

    assert candidate.take_text() == ""


def test_a_stop_string_ends_the_text_before_it() -> None:
    candidate = _candidate(_limits(stops=("END", "ND")))
    candidate.accept_token(_ANY, 1, b"ab E")
    candidate.accept_token(_ANY, 1, b"ND cd")

    assert candidate.finish_reason is FinishReason.STOP
    assert candidate.take_text() == "ab "


def _limits_before(suffix: str, **others: Any) -> Limits:
    return Limits(100, (), _ENDLESS, build_suffix_rule("f(", suffix), **others)


def test_the_text_ends_before_the_suffix() -> None:
    candidate = _candidate(_limits_before(")\n"))
    candidate.accept_token(_ANY, 1, b"ab)")
    assert not candidate.finish_reason

    candidate.accept_token(_ANY, 1, b"\nmore")

    assert candidate.finish_reason is FinishReason.SUFFIX
    assert candidate.text == "ab"


@pytest.mark.parametrize(
    ("reason", "kept"),
    [
        (FinishReason.LENGTH, FinishReason.SUFFIX),
        (FinishReason.END, FinishReason.SUFFIX),
        (FinishReason.DEADLINE, FinishReason.DEADLINE),
        (FinishReason.CANCELLED, FinishReason.CANCELLED),
    ],
)
def test_however_it_ends_the_suffix_is_cut(reason: FinishReason, kept: FinishReason) -> None:
    candidate = _candidate(_limits_before(")\n"))
    candidate.accept_token(_ANY, 1, b"ab)")

    candidate.finish(reason)

    assert (candidate.finish_reason, candidate.take_text()) == (kept, "ab")


@pytest.mark.parametrize(("reads_suffix", "text"), [(True, "a\nb"), (False, "a")])
def test_a_model_that_read_the_suffix_may_end_with_the_same_line(reads_suffix: bool, text: str) -> None:
    candidate = _candidate(_limits_before("\nb\n", reads_suffix=reads_suffix))
    candidate.accept_token(_ANY, 1, b"a\nb")

    candidate.finish(FinishReason.END)

    assert candidate.take_text() == text


def test_a_first_line_that_may_be_the_suffix_is_held_back() -> None:
    candidate = _candidate(Limits(100, (), _ENDLESS, build_suffix_rule("x\n", "\na\nb\n")))
    sent = []
    for token in (b"a\n", b"b", b"c\n"):
        candidate.accept_token(_ANY, 1, token)
        sent.append(candidate.take_text())

    assert sent == ["", "", "a"]


def test_a_stop_string_that_may_still_end_the_text_does_not_speak_against_the_suffix() -> None:
    candidate = _candidate(Limits(100, ("ab",), _ENDLESS, build_suffix_rule("f(\n", "\nb:\na")))

    candidate.accept_token(_ANY, 1, b"b:\n    a")
    sent = candidate.take_text()
    candidate.accept_token(_ANY, 1, b"b")

    assert sent + candidate.take_text() == candidate.text


def test_the_earliest_end_in_the_text_wins() -> None:
    candidate = _candidate(_limits(stops=("c",), extent=LineRule()))
    candidate.accept_token(_ANY, 1, b"ab\nc")

    assert candidate.finish_reason is FinishReason.EXTENT
    assert candidate.text == "ab"


def test_the_first_finish_reason_is_kept() -> None:
    candidate = _candidate(_limits())

    candidate.finish(FinishReason.DEADLINE)
    candidate.finish(FinishReason.CANCELLED)

    assert candidate.finish_reason is FinishReason.DEADLINE


def test_healed_bytes_are_not_sent_and_not_counted() -> None:
    candidate = _candidate(_limits(max_tokens=1), num_healed_bytes=4)

    candidate.accept_path((7, 8), b"No")
    candidate.accept_token(Crossing(1, b"de", Rule.CROSS), 9, b"des")

    assert candidate.text == "s"
    assert candidate.token_ids == [7, 8, 9]
    assert candidate.finish_reason is FinishReason.LENGTH


def test_a_token_shortens_the_remaining_bytes() -> None:
    candidate = _candidate(_limits(max_tokens=1), num_healed_bytes=4)

    candidate.accept_token(Crossing(None, b"Node", Rule.SPELL), 9, b"No")

    assert candidate.crossings == (Crossing(None, b"de", Rule.SPELL),)
    assert candidate.tree == TokenTree((9,))
    assert candidate.finish_reason is None


def test_any_token_can_follow_the_remaining_bytes() -> None:
    candidate = _candidate(_limits(), num_healed_bytes=2)

    candidate.accept_token(Crossing(None, b"No", Rule.CROSS), 9, b"Node")

    assert [crossing.remaining_bytes for crossing in candidate.crossings] == [b""]

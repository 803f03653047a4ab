import dataclasses
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.engine.answer import Answer, Limits
from inference.engine.stopping import BlockRule, LineRule
from inference.engine.suffix_rule import build_suffix_rule
from inference.protocol.completion import Chunks, FinishReason
from tests.support.toys import texts

_ENDLESS = BlockRule(0, closes=False)


def _limits(max_tokens: int = 100, stops: tuple[str, ...] = (), extent: LineRule | BlockRule = _ENDLESS) -> Limits:
    return Limits(max_tokens, stops, extent)


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
    lambda max_tokens, stops, extent, around, reads_suffix: Limits(
        max_tokens, tuple(stops), extent, build_suffix_rule(*around), reads_suffix, around[0].rpartition("\n")[2]
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


@settings(max_examples=10 * settings().max_examples)
@given(tokens=_tokens, limits=_bounds, chunks=st.sampled_from(Chunks), reason=st.sampled_from(FinishReason))
def test_streamed_pieces_joined_equal_the_text_sent_at_once(
    tokens: list[bytes], limits: Limits, chunks: Chunks, reason: FinishReason
) -> None:
    streaming, at_once = Answer(limits), Answer(limits)
    streamed = []
    for token in tokens:
        if streaming.finish_reason:
            break
        streaming.add(token)
        at_once.add(token)
        streamed.append(streaming.take_text(chunks))
    for answer in (streaming, at_once):
        answer.finish(reason)
    streamed.append(streaming.take_text(chunks))

    assert "".join(streamed) == at_once.take_text(chunks)
    assert chunks is Chunks.TOKENS or sum(map(bool, streamed)) <= 2


_MORE = ["", "z", " z", "\n", "\nz", "\n    z", "\n\n", " \nz", "\r\n", "\n a\nz"]


def _iter_continuations(text: str, limits: Limits) -> Iterator[str]:
    """Ways to go on that may cut the text: to a stop string, to the suffix, or into a loop."""
    cuts = list(limits.stops)
    if limits.suffix is not None:
        below = "\n".join(limits.suffix.lines_below)
        cuts += [limits.suffix.remaining_line + end for end in ("", "\n", "\n" + below + "\n")]
        cuts += [limits.line_before + below + "\n", "\n" + below + "\n", below + "\n"]
        cuts.append("\n" + 2 * (below.partition("\n")[0] + "\n") + below)
    rests = dict.fromkeys(each[start:] for each in cuts for start in range(len(each)))
    for rest in (*rests, ""):
        for more in ("", " ", "\n", "\nz", "z"):
            yield rest + more
            yield "\n" + rest + more
    lines = (limits.line_before + text).split("\n")
    for size in range(1, len(lines)):
        unit = lines[-1 - size : -1]
        for blanks in ("", " "):
            if (unit[0] + blanks).startswith(lines[-1]):
                yield (unit[0] + blanks)[len(lines[-1]) :] + "\n" + 7 * ("\n".join([*unit[1:], unit[0]]) + "\n")
    yield "\n" * 9
    yield " \n" * 9
    for size in range(1, min(len(lines[-1]), 8) + 1):
        yield (1 + 140 // size) * lines[-1][-size:]
    yield from (first + second for first in _MORE for second in _MORE)


def _find_certain(tokens: list[bytes], limits: Limits) -> str:
    """What all the texts begin with that may come of the tokens, or of a good sample of them."""
    text = b"".join(tokens).decode(errors="ignore")
    whole = []
    for more in dict.fromkeys(_iter_continuations(text, limits)):
        for reason in {FinishReason.LENGTH, FinishReason.END if limits.reads_suffix else FinishReason.LENGTH}:
            answer = Answer(limits)
            for token in (*tokens, *_split(more, 1)):
                if not answer.finish_reason:
                    answer.add(token)
            answer.finish(reason)
            whole.append(answer.text)
    first, last = min(whole), max(whole)
    return first[: next((at for at, char in enumerate(first) if last[at : at + 1] != char), len(first))]


@given(tokens=_tokens, limits=_bounds)
def test_what_is_certain_is_sent(tokens: list[bytes], limits: Limits) -> None:
    """Two cases may wait longer.

    A repeat of the rest of the cursor's line which only the count of brackets forbids; and white space at the end,
    which may belong to what a stop string, a loop or the suffix cuts.
    """
    limits = dataclasses.replace(limits, max_tokens=10_000)
    answer = Answer(limits)
    sent = ""
    for token in tokens:
        answer.add(token)
        if answer.finish_reason:
            return
        sent += answer.take_text(Chunks.TOKENS)

    certain = _find_certain(tokens, limits)
    assert certain.startswith(sent)
    rest = "" if limits.suffix is None else limits.suffix.remaining_line
    if not set("()[]{}").intersection(rest):
        may_wait = answer.text != certain or limits.suffix is not None
        assert sent == certain or (sent == certain.rstrip() and may_wait)


def test_the_first_line_is_sent_as_soon_as_it_is_complete() -> None:
    answer = Answer(_limits())
    sent = []
    for token in (b"\n  a", b"b", b" \n", b"  c", b"\n"):
        answer.add(token)
        sent.append(answer.take_text(Chunks.LINES))
    answer.finish(FinishReason.LENGTH)

    assert [*sent, answer.take_text(Chunks.LINES)] == ["", "", "\n  ab", "", "", " \n  c\n"]


def test_a_possible_beginning_of_a_stop_string_is_held_back() -> None:
    answer = Answer(_limits(stops=("b\nc",)))
    answer.add(b"ab\n")

    assert answer.take_text(Chunks.LINES) == ""


def test_a_stop_string_ends_the_text_before_it() -> None:
    answer = Answer(_limits(stops=("END", "ND")))
    answer.add(b"ab E")
    answer.add(b"ND cd")

    assert answer.finish_reason is FinishReason.STOP
    assert answer.take_text(Chunks.LINES) == "ab "


def _limits_before(suffix: str, **others: Any) -> Limits:
    return Limits(100, (), _ENDLESS, build_suffix_rule("f(", suffix), **others)


def test_the_text_ends_before_the_suffix() -> None:
    answer = Answer(_limits_before(")\n"))
    answer.add(b"ab)")
    assert not answer.finish_reason

    answer.add(b"\nmore")

    assert answer.finish_reason is FinishReason.SUFFIX
    assert answer.text == "ab"


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
    answer = Answer(_limits_before(")\n"))
    answer.add(b"ab)")

    answer.finish(reason)

    assert (answer.finish_reason, answer.take_text(Chunks.LINES)) == (kept, "ab")


@pytest.mark.parametrize(("reads_suffix", "text"), [(True, "a\nb"), (False, "a")])
def test_a_model_that_read_the_suffix_may_end_with_the_same_line(reads_suffix: bool, text: str) -> None:
    answer = Answer(_limits_before("\nb\n", reads_suffix=reads_suffix))
    answer.add(b"a\nb")

    answer.finish(FinishReason.END)

    assert answer.take_text(Chunks.LINES) == text


def test_a_first_line_that_may_be_the_suffix_is_held_back() -> None:
    answer = Answer(Limits(100, (), _ENDLESS, build_suffix_rule("x\n", "\na\nb\n")))
    sent = []
    for token in (b"a\n", b"b", b"c\n"):
        answer.add(token)
        sent.append(answer.take_text(Chunks.LINES))

    assert sent == ["", "", "a"]


def test_a_stop_string_that_may_still_end_the_text_does_not_speak_against_the_suffix() -> None:
    answer = Answer(Limits(100, ("ab",), _ENDLESS, build_suffix_rule("f(\n", "\nb:\na")))

    answer.add(b"b:\n    a")
    sent = answer.take_text(Chunks.LINES)
    answer.add(b"b")

    assert sent + answer.take_text(Chunks.LINES) == answer.text


def test_the_earliest_end_in_the_text_wins() -> None:
    answer = Answer(_limits(stops=("c",), extent=LineRule()))
    answer.add(b"ab\nc")

    assert answer.finish_reason is FinishReason.EXTENT
    assert answer.text == "ab"


def test_the_first_finish_reason_is_kept() -> None:
    answer = Answer(_limits())

    answer.finish(FinishReason.DEADLINE)
    answer.finish(FinishReason.CANCELLED)

    assert answer.finish_reason is FinishReason.DEADLINE


def test_healed_bytes_are_not_sent_and_not_counted() -> None:
    answer = Answer(_limits(max_tokens=1), num_healed_bytes=5)

    answer.skip_healed(2)
    answer.add(b"d", is_new=False)
    assert answer.finish_reason is None
    answer.add(b"es!")

    assert answer.text == "!"
    assert answer.finish_reason is FinishReason.LENGTH


@st.composite
def _cut_bytes(draw: st.DrawFn) -> list[bytes]:
    """Draws the bytes of a text, cut into pieces anywhere."""
    data = draw(texts).encode()
    ends = sorted({0, len(data), *draw(st.lists(st.integers(0, len(data)), max_size=8))})
    return [data[start:end] for start, end in pairwise(ends)]


@given(pieces=_cut_bytes(), num_healed=st.integers(0, 20))
def test_the_text_is_what_follows_the_healed_bytes_in_whole_code_points(pieces: list[bytes], num_healed: int) -> None:
    answer, added = Answer(_limits(), num_healed), b""
    for piece in (num_healed * b"x" + b"".join(pieces[:1]), *pieces[1:]):
        answer.add(piece)
        added += piece
        if answer.finish_reason:
            return
        assert answer.text == added[num_healed:].decode(errors="ignore")


def test_bytes_that_are_not_utf8_are_replaced() -> None:
    answer = Answer(_limits())

    answer.add(b"a\xffb")

    assert answer.text == "a�b"


@pytest.mark.parametrize(
    ("limits", "text", "sent"),
    [
        (_limits(extent=BlockRule(1, closes=True)), "a ", "a"),
        (_limits(extent=BlockRule(1, closes=True)), "a\n  b", "a\n  b"),
        (_limits(stops=("bc",)), "ab", "a"),
        (_limits(), "a\na", "a"),
        (_limits(), "a\nb", "a\nb"),
        (_limits_before(")"), "a)", "a"),
        (Limits(100, ("ab",), _ENDLESS, build_suffix_rule("f(\n", "\nb:\na")), "b:\n    a", ""),
    ],
)
def test_text_waits_while_a_rule_may_cut_it(limits: Limits, text: str, sent: str) -> None:
    answer = Answer(limits)
    for char in text:
        answer.add(char.encode())

    assert answer.finish_reason is None
    assert answer.take_text(Chunks.TOKENS) == sent


def test_a_loop_ends_the_text_before_the_repetition() -> None:
    answer = Answer(dataclasses.replace(_limits(), line_before="x = "))
    for token in (b"1\n", b"x = 1\n", b"x = 1\n", b"x = 1\n"):
        answer.add(token)

    assert (answer.finish_reason, answer.text) == (FinishReason.LOOP, "1")


def test_half_a_code_point_waits() -> None:
    answer = Answer(_limits())
    sent = []
    for byte in "aé".encode():
        answer.add(bytes([byte]))
        sent.append(answer.take_text(Chunks.TOKENS))

    assert sent == ["a", "", "é"]


def test_a_stop_string_may_bring_back_the_suffix() -> None:
    answer = Answer(Limits(100, ("c\nd",), _ENDLESS, build_suffix_rule("f(\n", "\na\nb")))
    for token in (b"a\nc\n", b"d"):
        answer.add(token)

    assert (answer.finish_reason, answer.text) == (FinishReason.SUFFIX, "")

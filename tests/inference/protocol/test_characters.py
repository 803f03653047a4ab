import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from inference.errors import InvalidRequestError
from inference.protocol import characters
from inference.protocol.arrays import Array
from inference.protocol.characters import (
    Ask,
    CharacterAnswer,
    CharacterRequest,
    CoveringKind,
    CoveringMember,
    Generated,
    NextByte,
    Surprisals,
    TextProbability,
)

_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_FRACTIONS = st.floats(0, 1)
_LOGARITHMS = st.floats(-1e300, 0) | st.just(-math.inf)
_BITS = st.floats(0, 1e300) | st.just(math.inf)


@st.composite
def _requests(draw: st.DrawFn) -> CharacterRequest:
    covering = draw(st.sampled_from(CoveringKind))
    limit, max_bytes = (6, 4) if covering is CoveringKind.ENUMERATE else (1000, characters.MAX_NEW)
    return CharacterRequest(
        draw(st.binary(min_size=1, max_size=limit)),
        draw(st.binary(max_size=limit)),
        draw(st.sampled_from(Ask)),
        covering,
        width=draw(st.integers(1, characters.MAX_WIDTH)),
        threshold=draw(st.floats(0, 1)),
        num_members=draw(st.integers(0, characters.MAX_MEMBERS)),
        max_bytes=draw(st.integers(1, max_bytes)),
        seed=draw(st.none() | st.integers(0, 2**63 - 1)),
        deadline_ms=draw(st.none() | st.integers(1, characters.MAX_DEADLINE_MS)),
    )


_MEMBERS = st.builds(CoveringMember, st.lists(_TEXTS, max_size=4).map(tuple), _TEXTS, _FRACTIONS)
_ANSWERS: st.SearchStrategy[CharacterAnswer] = st.one_of(
    st.builds(
        NextByte, st.tuples(*[_FRACTIONS] * 4).map(lambda some: some + (0.0,) * 253), st.lists(_MEMBERS).map(tuple)
    ),
    st.builds(Surprisals, st.lists(_BITS, min_size=1).map(tuple), _BITS),
    st.builds(TextProbability, _LOGARITHMS, _LOGARITHMS, _LOGARITHMS),
    st.builds(Generated, st.binary()),
)


@given(_requests())
def test_a_request_is_unchanged_after_a_round_trip_in_arrays_of_the_tables_types(request: CharacterRequest) -> None:
    arrays = characters.request_to_arrays(request)
    assert characters.request_from_arrays(arrays) == request
    for name, array in arrays.items():
        assert array.shape == (1,)
        assert array.dtype == characters.REQUEST_TYPES[name][1]


@given(_ANSWERS)
@example(Surprisals((1.0, math.inf), math.inf))
def test_an_answer_is_unchanged_after_a_round_trip_in_arrays_that_are_strict_json(answer: CharacterAnswer) -> None:
    arrays = characters.answer_to_arrays(answer)
    assert characters.answer_from_arrays(arrays) == answer
    for name, array in arrays.items():
        assert array.ndim == 1
        assert array.dtype == characters.ANSWER_TYPES[name][1]
        assert array.dtype == np.object_ or json.dumps(array.tolist(), allow_nan=False)


def test_generated_bytes_that_are_not_utf8_are_escaped_in_the_text() -> None:
    arrays = characters.answer_to_arrays(Generated(b"a\xc3"))
    assert arrays["generated"].tolist() == [b"a\\xc3"]
    assert arrays["generated_bytes"].tolist() == [0x61, 0xC3]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"width": 0}, "width must be between 1 and 1024, not 0"),
        ({"width": 1025}, "width must be between 1 and 1024, not 1025"),
        ({"threshold": 1.1}, "threshold must be between 0 and 1, not 1.1"),
        ({"threshold": -0.1}, "threshold must be between 0 and 1, not -0.1"),
        ({"threshold": math.nan}, "threshold must be between 0 and 1, not nan"),
        ({"num_members": 65}, "num_members must be between 0 and 64, not 65"),
        ({"max_bytes": 0}, "max_bytes must be between 1 and 4096, not 0"),
        ({"seed": -1}, f"seed must be between 0 and {2**63 - 1}, not -1"),
        ({"deadline_ms": 0}, "deadline_ms must be between 1 and 3600000, not 0"),
        ({"deadline_ms": 3_600_001}, "deadline_ms must be between 1 and 3600000, not 3600001"),
        ({"text": b"", "ask": Ask.SURPRISAL}, "text is empty; surprisal is about its bytes"),
        ({"text": b"", "ask": Ask.PROBABILITY}, "text is empty; probability is about its bytes"),
        (
            {"text": b"a" * 16385},
            "text has 16385 bytes; at most 16384 are taken, with context before them",
        ),
        (
            {"text": b"a" * 9, "context": b"a" * 8, "covering": CoveringKind.ENUMERATE},
            "enumerate takes up to 16 bytes; context and text are 17 together",
        ),
        (
            {"max_bytes": 16, "covering": CoveringKind.ENUMERATE, "ask": Ask.GREEDY},
            "enumerate takes up to 16 bytes; context, text and max_bytes are 17 together",
        ),
        ({"context": b"a" * (2 * 1024 * 1024 + 1)}, "context has 2097153 bytes; at most 2097152 are taken"),
    ],
)
def test_a_value_out_of_range_is_refused_with_the_range(values: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        CharacterRequest(**{"text": b"a", **values})
    assert str(caught.value) == text


def _text(*items: bytes) -> Array:
    return np.array(items, np.object_)


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        ({}, "text is missing: what is asked about"),
        ({"text": _text(b"a", b"b")}, "text takes one value, not 2"),
        (
            {"text": _text(b"a"), "ask": _text(b"magic")},
            "ask must be one of next_byte, surprisal, probability, sample, greedy, not 'magic'",
        ),
        (
            {"text": _text(b"a"), "covering": _text(b"all")},
            "covering must be one of canonical, beam, enumerate, not 'all'",
        ),
        ({"text": _text(b"a"), "ask": _text(b"\xff")}, "ask is not UTF-8: invalid start byte at byte 0"),
        (
            {"text": _text(b"a"), "prefix": _text(b"a")},
            "unknown field 'prefix'; known are text, context, ask, covering, width, threshold, num_members, "
            "max_bytes, seed, deadline_ms, tenant",
        ),
    ],
)
def test_an_invalid_array_is_named_in_the_error(arrays: dict[str, Array], text: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        characters.request_from_arrays(arrays)
    assert str(caught.value) == text

import json
import math

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from inference.protocol import characters
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

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.errors import (
    InferenceServerUnreachableError,
    InvalidRequestError,
    MidtokenError,
    OverloadedError,
    ServerError,
)
from inference.protocol import characters, completion
from inference.protocol.arrays import (
    CHUNK_TYPES,
    REQUEST_TYPES,
    FieldTypes,
    chunk_from_arrays,
    chunk_to_arrays,
    error_from_text,
    request_from_arrays,
    request_to_arrays,
    to_array,
)
from inference.protocol.completion import (
    CompletionChunk,
    CompletionRequest,
    CompletionStats,
    ExplainedFile,
    ExplainedNode,
    Explanation,
    Extent,
    FinishReason,
    Healing,
    Priority,
    RelatedFile,
)

_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)  # no lone surrogates: those are refused
_COUNTS = st.integers(0, 2**31 - 1)
_FLOATS = st.floats(0, 1e6, width=32)

_REQUESTS = st.builds(
    CompletionRequest,
    prefix=_TEXTS,
    suffix=_TEXTS,
    max_tokens=st.integers(1, completion.MAX_NEW_TOKENS),
    healing=st.sampled_from(Healing),
    stop=st.lists(_TEXTS.filter(bool), max_size=completion.MAX_STOP_STRINGS).map(tuple),
    extent=st.sampled_from(Extent),
    temperature=st.floats(0, 10, width=32),
    top_p=st.floats(0, 1, exclude_min=True, width=32),
    seed=st.none() | st.integers(0, 2**63 - 1),
    num_candidates=st.integers(1, completion.MAX_CANDIDATES),
    deadline_ms=st.none() | st.integers(1, 3_600_000),
    explain=st.booleans(),
    tenant=_TEXTS,
    document=_TEXTS,
    priority=st.sampled_from(Priority),
    chunks=st.sampled_from(completion.Chunks),
    related=st.lists(st.builds(RelatedFile, _TEXTS, _TEXTS), max_size=3).map(tuple),
    path=_TEXTS,
)
_STATS = st.builds(
    CompletionStats,
    **{field.name: _FLOATS if field.name.endswith("_ms") else _COUNTS for field in dataclasses.fields(CompletionStats)},
)
_NODES = st.builds(
    ExplainedNode,
    parent=st.none() | _COUNTS,
    token=_TEXTS,
    num_covered_bytes=_COUNTS,
    log_mass=st.floats(-1e6, 0),
    best_token=st.none() | _TEXTS,
    best_log_prob=st.none() | st.floats(-1e6, 0),
)
_TOKENS = st.lists(_TEXTS, max_size=4).map(tuple)
_EXPLANATIONS = st.builds(
    Explanation,
    kept_tail=_TOKENS,
    healed_bytes=_TEXTS,
    nodes=st.lists(_NODES, max_size=4).map(tuple),
    chosen_tokens=_TOKENS,
    unhealed_tokens=_TOKENS,
    related=st.lists(st.builds(ExplainedFile, _TEXTS, st.none() | _COUNTS), max_size=3).map(tuple),
)
_CHUNKS = st.builds(
    CompletionChunk,
    text=_TEXTS,
    candidate=_COUNTS,
    healed_bytes=_COUNTS,
    finish_reason=st.none() | st.sampled_from(FinishReason),
    stats=st.none() | _STATS,
    explanation=st.none() | _EXPLANATIONS,
)


@given(_REQUESTS)
def test_a_request_is_unchanged_after_a_round_trip_in_arrays_of_the_tables_types(request: CompletionRequest) -> None:
    arrays = request_to_arrays(request)
    assert request_from_arrays(arrays) == request
    assert all(array.dtype == REQUEST_TYPES[name][1] for name, array in arrays.items())


@given(_CHUNKS)
def test_a_chunk_is_unchanged_after_a_round_trip_in_arrays_of_the_tables_types(chunk: CompletionChunk) -> None:
    arrays = chunk_to_arrays(chunk)
    assert chunk_from_arrays(arrays) == chunk


def test_a_statistic_that_only_a_newer_server_knows_is_left_out() -> None:
    arrays = chunk_to_arrays(CompletionChunk("a", stats=CompletionStats(num_tokens=3)))
    told = json.loads(arrays["stats"][0]) | {"num_miracles": 1}
    arrays["stats"] = np.array([json.dumps(told).encode()], np.object_)
    assert chunk_from_arrays(arrays).stats == CompletionStats(num_tokens=3)
    for name, array in arrays.items():
        assert array.shape == (1,)
        assert array.dtype == CHUNK_TYPES[name][1]


@pytest.mark.parametrize(
    ("types", "request_type"),
    [(REQUEST_TYPES, CompletionRequest), (characters.REQUEST_TYPES, characters.CharacterRequest)],
    ids=["completion", "characters"],
)
def test_the_table_names_every_field_of_a_request(types: FieldTypes, request_type: Any) -> None:
    assert list(types) == [field.name for field in dataclasses.fields(request_type)]


def test_the_page_names_every_field_of_a_request_and_of_its_statistics() -> None:
    rows = [line for line in Path("docs/http.md").read_text().splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall("`(\\w+)`", row.split("|")[1])}

    fields = dataclasses.fields(CompletionRequest)[1:] + dataclasses.fields(CompletionStats)
    assert {field.name for field in fields} <= named


_COMPLETION: list[tuple[dict[str, list[bytes]], str]] = [
    ({}, "prefix is missing: the text before the cursor"),
    ({"prefix": [b"a", b"b"]}, "prefix takes one value, not 2"),
    ({"prefix": []}, "prefix takes one value, not 0"),
    ({"prefix": [b"a\xff"]}, "prefix is not UTF-8: invalid start byte at byte 1"),
    ({"prefix": [b"a"], "stop": [b"x", b"\xff"]}, "stop is not UTF-8: invalid start byte at byte 0"),
    ({"prefix": [b"a"], "healing": [b"magic"]}, "healing must be one of exact, greedy, single, none, not 'magic'"),
    ({"prefix": [b"a"], "priority": [b"now"]}, "priority must be one of interactive, prefetch, probe, not 'now'"),
    (
        {"prefix": [b"a"], "extent": [b"page"]},
        "extent must be one of single_line, block, unlimited, auto, not 'page'",
    ),
    ({"prefix": [b"a"], "related": [b"a.py"]}, "related takes path and text of each item, not 1 strings"),
    ({"prefix": [b"a"], "related": [b"a.py", b"\xff"]}, "related is not UTF-8: invalid start byte at byte 0"),
    ({"prefix": [b"a"], "chunks": [b"words"]}, "chunks must be one of tokens, lines, not 'words'"),
]
_CHARACTERS: list[tuple[dict[str, list[bytes]], str]] = [
    ({}, "text is missing: what is asked about"),
    ({"text": [b"a", b"b"]}, "text takes one value, not 2"),
    (
        {"text": [b"a"], "ask": [b"magic"]},
        "ask must be one of next_byte, surprisal, probability, sample, greedy, not 'magic'",
    ),
    (
        {"text": [b"a"], "covering": [b"all"]},
        "covering must be one of canonical, beam, enumerate, not 'all'",
    ),
    ({"text": [b"a"], "ask": [b"\xff"]}, "ask is not UTF-8: invalid start byte at byte 0"),
    (
        {"text": [b"a"], "prefix": [b"a"]},
        "unknown field 'prefix'; known are text, context, ask, covering, width, threshold, num_members, "
        "max_bytes, seed, deadline_ms, tenant",
    ),
]


@pytest.mark.parametrize(
    ("read", "arrays", "text"),
    [
        *((request_from_arrays, *row) for row in _COMPLETION),
        *((characters.request_from_arrays, *row) for row in _CHARACTERS),
    ],
)
def test_an_invalid_array_is_named_in_the_error(read: Any, arrays: dict[str, list[bytes]], text: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        read({name: np.array(items, np.object_) for name, items in arrays.items()})
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("ends", "log_probs"), [((1,), ()), ((1, 2), (-0.1,)), ((3,), (-0.1,)), ((2, 1), (-0.1, -0.2))]
)
def test_probabilities_that_do_not_belong_to_the_text_are_refused(
    ends: tuple[int, ...], log_probs: tuple[float, ...]
) -> None:
    arrays = chunk_to_arrays(CompletionChunk("ab", text_ends=ends, log_probs=log_probs))

    with pytest.raises(ServerError, match="do not belong to its text"):
        chunk_from_arrays(arrays)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["healing"], "1048576 characters"),
        (["x" * 2**20], "1048576 characters"),
        ([f"field_{number}" for number in range(40_000)], "unknown field 'field_0'; known are prefix, "),
    ],
)
def test_long_input_is_quoted_only_in_part(names: list[str], text: str) -> None:
    value = np.array([b"\x00" * 2**20], np.object_)
    with pytest.raises(InvalidRequestError, match=text) as caught:
        request_from_arrays({"prefix": value} | dict.fromkeys(names, value))

    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("half", ["\ud83d", b"\xed\xa0\xbd"], ids=repr)
def test_half_a_surrogate_pair_is_u_fffd(half: str | bytes) -> None:
    texts = to_array(["a" + half if isinstance(half, str) else b"a" + half], np.object_)
    assert request_from_arrays({"prefix": texts}).prefix == "a\ufffd"


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (InvalidRequestError("no"), InvalidRequestError, "INVALID_ARG"),
        (OverloadedError("no"), OverloadedError, "UNAVAILABLE"),
        (InferenceServerUnreachableError("no"), InferenceServerUnreachableError, "UNAVAILABLE"),
        (MidtokenError("no"), ServerError, "INTERNAL"),
        (ServerError("failed to open the stream"), ServerError, "INTERNAL"),
    ],
)
def test_an_error_keeps_its_type_and_text(error: MidtokenError, kind: type[MidtokenError], code: str) -> None:
    received = error_from_text(error.stream_text)
    assert (type(received), str(received), error.code) == (kind, str(error), code)

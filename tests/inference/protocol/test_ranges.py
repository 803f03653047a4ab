import math
from typing import Any

import pytest

from inference.errors import InvalidRequestError
from inference.protocol.characters import Ask, CharacterRequest, CoveringKind
from inference.protocol.completion import CompletionRequest, RelatedFile

_COMPLETION: list[tuple[dict[str, Any], str]] = [
    ({"max_tokens": 0}, "max_tokens must be between 1 and 4096, not 0"),
    ({"max_tokens": 4097}, "max_tokens must be between 1 and 4096, not 4097"),
    ({"num_candidates": 17}, "num_candidates must be between 1 and 16, not 17"),
    ({"temperature": -0.5}, "temperature must be between 0.0 and 10.0, not -0.5"),
    ({"temperature": float("nan")}, "temperature must be between 0.0 and 10.0, not nan"),
    ({"top_p": 0.0}, "top_p must be above 0 and at most 1, not 0.0"),
    ({"top_p": 1.5}, "top_p must be above 0 and at most 1, not 1.5"),
    ({"seed": -1}, f"seed must be between 0 and {2**63 - 1}, not -1"),
    ({"deadline_ms": 0}, "deadline_ms must be between 1 and 3600000, not 0"),
    ({"stop": ("",)}, "stop takes up to 16 strings, none of them empty"),
    ({"stop": ("x",) * 17}, "stop takes up to 16 strings, none of them empty"),
    ({"stop": ("\ud800",)}, "stop holds a lone surrogate at character 0"),
    ({"prefix": "ab\ud800"}, "prefix holds a lone surrogate at character 2"),
    ({"suffix": "\udfff"}, "suffix holds a lone surrogate at character 0"),
    ({"tenant": "\ud800"}, "tenant holds a lone surrogate at character 0"),
    ({"tenant": "é" * 513}, "tenant has 1026 bytes; at most 1024 are taken"),
    ({"document": "x" * 1025}, "document has 1025 bytes; at most 1024 are taken"),
    ({"path": "x" * 1025}, "path has 1025 bytes; at most 1024 are taken"),
    ({"related": (RelatedFile("x" * 1025, ""),)}, "a path in related has 1025 bytes; at most 1024 are taken"),
    ({"related": (RelatedFile("", "x" * 2**20),) * 3}, "related has 3145728 bytes; at most 2097152 are taken"),
    ({"related": (RelatedFile("", ""),) * 257}, "related takes up to 256 files, not 257"),
    ({"prefix": "é" * (4 * 1024 * 1024 + 1)}, "prefix has 8388610 bytes; at most 2097152 are taken"),
]
_CHARACTERS: list[tuple[dict[str, Any], str]] = [
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
]


@pytest.mark.parametrize(
    ("kind", "values", "text"),
    [
        *((CompletionRequest, {"prefix": "a"} | values, text) for values, text in _COMPLETION),
        *((CharacterRequest, {"text": b"a"} | values, text) for values, text in _CHARACTERS),
    ],
)
def test_a_value_out_of_range_is_refused_with_the_range(kind: Any, values: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        kind(**values)
    assert str(caught.value) == text

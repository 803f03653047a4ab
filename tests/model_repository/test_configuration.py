"""The config.pbtxt of both models."""

import re
from typing import Any

import pytest

from inference.protocol import characters
from inference.protocol.arrays import CHUNK_TYPES, COMMON_TYPES, DESCRIPTION_TYPES, REQUEST_TYPES
from tests.support.hosted_models import read_configuration

_ROW = r'name: "(\w+)", data_type: TYPE_(\w+), dims: \[ (-?\d+) \](, optional: true)? \}'


@pytest.mark.parametrize(
    ("name", "request_types", "answer_types", "dims"),
    [
        (
            "completion",
            REQUEST_TYPES,
            DESCRIPTION_TYPES | CHUNK_TYPES,
            dict.fromkeys(("stop", "related", "languages", "inputs", "text_ends", "log_probs"), "-1"),
        ),
        (
            "characters",
            characters.REQUEST_TYPES,
            {"heartbeat_ms": DESCRIPTION_TYPES["heartbeat_ms"]} | characters.ANSWER_TYPES,
            {"probabilities": "257", "surprisals": "-1", "generated_bytes": "-1"},
        ),
    ],
    ids=["completion", "characters"],
)
def test_the_configuration_has_the_tensors_of_the_protocol(
    name: str, request_types: dict[str, Any], answer_types: dict[str, Any], dims: dict[str, str]
) -> None:
    inputs, outputs = read_configuration(name).split("output [")
    kinds = {"BYTES": "STRING"}
    cases = ((inputs, request_types | COMMON_TYPES), (outputs, answer_types))
    for text, types in cases:
        is_optional = [text is inputs and each not in ("prefix", "text") for each in types]
        assert re.findall(_ROW, text) == [
            (each, kinds.get(kind, kind), dims.get(each, "1"), ", optional: true" if optional else "")
            for (each, (kind, _)), optional in zip(types.items(), is_optional, strict=True)
        ]

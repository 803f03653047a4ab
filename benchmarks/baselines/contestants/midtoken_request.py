"""The completion request of midtoken's contestants."""

import dataclasses
from typing import Any

from benchmarks.baselines.contestants.line_protocol import Request
from inference.protocol.completion import CompletionRequest, Extent

_FIELDS = {field.name for field in dataclasses.fields(CompletionRequest)}
_BY_TOKEN: dict[str, Any] = {"chunks": "tokens"} if "chunks" in _FIELDS else {}


def build_request(request: Request) -> CompletionRequest:
    """A line at the cursor, with exact healing, sent token by token."""
    return CompletionRequest(
        request.text, request.suffix, max_tokens=request.max_tokens, extent=Extent.SINGLE_LINE, **_BY_TOKEN
    )

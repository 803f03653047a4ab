"""Clients of the port get the indentation of their own text."""

from collections.abc import AsyncGenerator

import pytest

from inference.protocol.completion import CompletionChunk, CompletionRequest, FinishReason
from midtoken.http.indented import send_blanks, write_tabs

_PREFIX = "class A:\n\tdef size(self):"
_WRITTEN = "\n        if x:\n            return 2\n        return 1\n"


@pytest.mark.parametrize("num_chars", [1, 3, 100])
@pytest.mark.parametrize(
    ("prefix", "shown"), [(_PREFIX, "\n\t\tif x:\n\t\t\treturn 2\n\t\treturn 1\n"), ("a:\n  b:", _WRITTEN)]
)
async def test_a_text_with_tabs_is_continued_with_tabs(prefix: str, shown: str, num_chars: int) -> None:
    async def generate() -> AsyncGenerator[CompletionChunk, None]:
        for start in range(0, len(_WRITTEN), num_chars):
            part = _WRITTEN[start : start + num_chars]
            yield CompletionChunk(part, text_ends=(len(part),), log_probs=(-0.1,))
        yield CompletionChunk("", finish_reason=FinishReason.END)

    chunks = [each async for each in write_tabs(generate(), CompletionRequest(prefix))]
    assert "".join(each.text for each in chunks) == shown
    assert sum(len(each.text_ends) for each in chunks) == len(range(0, len(_WRITTEN), num_chars))
    assert all(list(each.text_ends) == sorted(each.text_ends) for each in chunks)
    assert all(end <= len(each.text) for each in chunks for end in each.text_ends)


@pytest.mark.parametrize(
    ("prefix", "sent"), [(_PREFIX, "class A:\n    def size(self):"), ("func f() {\n\tif a {", "func f() {\n\tif a {")]
)
def test_the_model_gets_blanks_for_the_tabs_of_python_only(prefix: str, sent: str) -> None:
    assert send_blanks(CompletionRequest(prefix)).prefix == sent

import asyncio
import math

import pytest

from inference.protocol.characters import END
from inference.protocol.completion import CompletionRequest, ExplainedNode
from midtoken.answer import find_shares, rank_bytes, read_answer
from tests.support.lsp_fakes import FedBackend, clear


async def test_the_texts_of_all_chunks_are_joined() -> None:
    backend = FedBackend()
    task = asyncio.create_task(read_answer(backend.stream(clear(CompletionRequest("return Nod")))))
    await asyncio.sleep(0)
    backend.streams[0].feed("e")
    backend.streams[0].finish("()")
    answer = await task
    assert (answer.text, answer.last.is_last) == ("e()", True)


@pytest.mark.parametrize(
    ("masses", "shares"),
    [
        ([math.log(0.3), None, math.log(0.1)], [0.75, None, 0.25]),
        ([-2000.0, -2000.0], [0.5, 0.5]),  # too small for a float
        ([None, None], [None, None]),
        ([], []),
    ],
)
def test_shares_are_of_all_crossings_and_sum_to_one(masses: list[float | None], shares: list[float | None]) -> None:
    found = find_shares([ExplainedNode(None, "", 0, mass, None, None) for mass in masses])
    assert list(found) == [share if share is None else pytest.approx(share) for share in shares]


@pytest.mark.parametrize(
    ("text", "byte", "shown", "note"),
    [
        (b"", END, "end of text", ""),
        (b"a", ord("\t"), "⇥", "0x09"),
        (b"a", ord("\n"), "⏎", "0x0a"),
        (b"a", 0x1B, "␛", "0x1b"),
        (b"\xe6\x97", 0xA5, "日", "0xa5, the last of 3 bytes"),
        ("日".encode(), 0xC3, "\\xc3", "0xc3, byte 1 of a character"),
        (b"a\xc3", 0xA9, "é", "0xa9, the last of 2 bytes"),
        (b"\xe6", 0x97, "\\x97", "0x97, byte 2 of a character"),
        (b"\xff", 0x97, "\\x97", "0x97, byte 1 of a character"),
    ],
)
def test_the_likely_bytes_have_readable_names(text: bytes, byte: int, shown: str, note: str) -> None:
    probabilities = [0.0] * (END + 1)
    probabilities[byte], probabilities[ord("x")] = 0.7, 0.3
    first, second = rank_bytes(probabilities, text, 5)
    assert (first.shown, first.note, first.share) == (shown, note, 0.7)
    assert second.share == 0.3
    assert rank_bytes(probabilities, text, 1) == [first]

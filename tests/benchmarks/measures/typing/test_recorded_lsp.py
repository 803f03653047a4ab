import asyncio
from collections.abc import AsyncGenerator
from dataclasses import asdict
from pathlib import Path

from benchmarks.measures.typing.recorded_lsp import RecordingBackend, read_records
from inference.protocol.completion import CompletionChunk, CompletionRequest, CompletionStats
from tests.support.lsp_fakes import FedBackend


async def test_the_record_has_the_text_next_to_the_cursor_and_the_statistics(tmp_path: Path) -> None:
    backend = FedBackend()
    recording = RecordingBackend(backend, tmp_path / "record.json")
    stream = recording.stream(CompletionRequest("p" * 100 + "é", "s" * 100))

    chunks = [await _receive(backend, stream, "a")]
    backend.streams[0].finish("b")
    chunks += [chunk async for chunk in stream]
    await recording.close()

    [record] = read_records(tmp_path / "record.json")
    assert [chunk.text for chunk in chunks] == ["a", "b"]
    assert (record.prefix_end, record.suffix_start) == ("p" * 63 + "é", "s" * 64)
    assert record.asked_at < record.chunks_at[0] < record.chunks_at[1]
    assert record.stats == asdict(CompletionStats())
    assert backend.is_closed


async def test_a_request_that_is_cancelled_has_no_statistics(tmp_path: Path) -> None:
    backend = FedBackend()
    recording = RecordingBackend(backend, tmp_path / "record.json")
    stream = recording.stream(CompletionRequest("a"))
    await _receive(backend, stream, "b")

    await stream.aclose()
    await recording.close()

    [record] = read_records(tmp_path / "record.json")
    assert (len(record.chunks_at), record.stats) == (1, None)


async def _receive(backend: FedBackend, stream: AsyncGenerator[CompletionChunk, None], text: str) -> CompletionChunk:
    receiving = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    backend.streams[-1].feed(text)
    return await receiving

"""A watch can stop a request between two forward passes of a real character-level model."""

import gc
import time
import weakref

import pytest

from inference.characters.model import CharacterModel
from inference.characters.service import CharacterService
from inference.characters.watched_reader import PassWatch, WatchedReader
from inference.characters.worker import CharacterWorker
from inference.protocol.characters import Ask, CharacterRequest, CoveringKind
from tests.support.answer_sink import AnswerSink, wait_until_soon
from tests.support.character_toys import RandomModel, ToyReader, find_start_ids
from tests.support.toys import narrow_tokenizer


class _StoppedWatch:
    """Stops the question at one of its forward passes, and counts the passes."""

    def __init__(self, watch: PassWatch, sink: AnswerSink, num_passes: int) -> None:
        self._watch, self._sink, self._num_left = watch, sink, num_passes

    def begin_pass(self) -> None:
        self._num_left -= 1
        assert self._num_left >= 0, "a cancelled question goes on"
        self._sink.cancelled = self._num_left == 0
        time.sleep(0.03)  # longer than the interval between checks for a cancel
        self._watch.begin_pass()

    def end_pass(self) -> None:
        self._watch.end_pass()


@pytest.mark.parametrize("covering", ["canonical", "single", "beam"])
@pytest.mark.parametrize("ask", [Ask.SURPRISAL, Ask.SAMPLE, Ask.COMPLETE])
def test_a_real_question_stops_between_two_forward_passes_and_its_states_are_freed(covering: str, ask: Ask) -> None:
    toy = narrow_tokenizer("qwen")
    sink = AnswerSink()
    readers: list[weakref.ref[ToyReader]] = []

    def load(watch: PassWatch) -> CharacterService:
        def new_reader() -> WatchedReader:
            reader = ToyReader(RandomModel(toy.trie.num_tokens, num_tokens_seen=2))
            readers.append(weakref.ref(reader))
            return WatchedReader(reader, _StoppedWatch(watch, sink, num_passes=3))

        return CharacterService(CharacterModel(toy.encoder, toy.trie, find_start_ids(toy), new_reader))

    worker = CharacterWorker(load)
    gc.collect()
    gc.disable()
    try:
        text = b"as a1 's\n sas" * 50
        request = CharacterRequest(text, ask=ask, covering=CoveringKind(covering), max_bytes=4096, max_tokens=4096)
        worker.submit(request, sink)
        assert sink.error == "the request was cancelled"
        wait_until_soon(lambda: worker.measure_heartbeat_ms() == 0)
        assert [reader() for reader in readers] == [None]
    finally:
        gc.enable()
        worker.close()

import queue
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace

import pytest

from inference.errors import InvalidRequestError
from inference.protocol.adapter import Ask, CancelWatch, read_inputs
from inference.protocol.completion_arrays import REQUEST_TYPES


def test_requests_are_asked_for_until_they_are_done_or_cannot_be_asked_and_those_after_a_pause_too() -> None:
    asked: queue.SimpleQueue[str] = queue.SimpleQueue()

    def make_ask(name: str, answers: Iterator[bool]) -> Ask:
        def ask() -> bool:
            asked.put(name)
            return next(answers)  # raises when there is none

        return ask

    with closing(CancelWatch()) as watch:
        for requests in ({"broken": [], "done": [True, False], "busy": 3 * [True] + [False]}, {"later": [False]}):
            for name, answers in requests.items():
                watch.add(make_ask(name, iter(answers)))
            expected = Counter({name: max(len(answers), 1) for name, answers in requests.items()})
            assert Counter(asked.get(timeout=60) for _ in range(expected.total())) == expected
    assert asked.empty(), "one was asked that need not be asked again"


def test_a_parameter_with_the_name_of_an_input_is_refused() -> None:
    request = SimpleNamespace(parameters=lambda: '{"seed": 3}')
    with pytest.raises(InvalidRequestError, match="seed is a parameter of the request; send it as an input"):
        read_inputs(request, lambda *_: None, REQUEST_TYPES)

import threading
from contextlib import closing

from inference.protocol.adapter import CancelWatch


class _Request:
    """Is asked a number of times, and raises then if it is broken."""

    def __init__(self, num_asked: int, is_broken: bool = False) -> None:
        self.num_left = num_asked
        self.is_done = threading.Event()
        self._is_broken = is_broken

    def ask(self) -> bool:
        assert self.num_left, "it said that it need not be asked again"
        self.num_left -= 1
        if self.num_left:
            return True
        self.is_done.set()
        if self._is_broken:
            raise RuntimeError("no answer")
        return False


def test_requests_are_asked_for_until_they_are_done_or_cannot_be_asked_and_those_after_a_pause_too() -> None:
    with closing(CancelWatch()) as watch:
        for requests in ([_Request(1, is_broken=True), _Request(2), _Request(4)], [_Request(1)], [_Request(1)]):
            for request in requests:
                watch.add(request.ask)
            for request in requests:
                assert request.is_done.wait(60)

"""Which keys' requests are sent to a server that does not keep up."""

import asyncio

from inference.client.pace import Pace

_GAP_S = 0.1


class _Server:
    """A server that takes `answer_s` for each request, and a clock that moves when somebody waits."""

    def __init__(self, answer_s: float) -> None:
        self.answer_s, self.now = answer_s, 0.0
        self.sent: list[tuple[float, str]] = []
        self._pace = Pace(lambda: self.now, self._sleep)
        self._until = 0.0  # when the next key comes

    async def _sleep(self, seconds: float) -> None:
        self.now = min(self.now + seconds, self._until)
        if self.now == self._until:
            raise asyncio.CancelledError  # by the next key

    async def type(self, text: str, document: str = "a", gap_s: float = _GAP_S) -> bool:
        """Types a key, and waits for the next. Returns whether it was answered."""
        self._until = self.now + gap_s
        is_answered = False
        try:
            await self._pace.wait(document)
            self.sent.append((self.now, text))
            try:
                await self._sleep(self.answer_s)
                is_answered = True
            finally:
                self._pace.note_end(document, is_answered)
        except asyncio.CancelledError:
            pass
        self.now = self._until
        return is_answered


async def test_a_server_that_keeps_up_gets_every_request_at_once() -> None:
    server = _Server(answer_s=0.05)
    answered = [await server.type(str(key)) for key in range(50)]
    assert all(answered)
    assert server.sent == [(server.sent[key][0], str(key)) for key in range(50)]
    assert {round(now / _GAP_S, 6) % 1 for now, _ in server.sent} == {0.0}


async def test_most_requests_that_would_be_superseded_are_not_sent_but_the_one_before_a_pause_is() -> None:
    server = _Server(answer_s=0.15)
    for key in range(200):
        assert not await server.type(str(key))
    late = [now for now, text in server.sent if int(text) >= 100]
    assert 30 <= len(late) <= 60
    assert {round(now / _GAP_S, 6) % 1 for now in late} == {0.0}, "sent later than typed, with less time for an answer"
    assert await server.type("pause", gap_s=1.0)
    assert server.sent[-1][1] == "pause"


async def test_documents_do_not_wait_for_each_other_and_nobody_waits_once_the_server_answers_again() -> None:
    server = _Server(answer_s=0.15)
    for key in range(100):
        await server.type(str(key))
    server.answer_s, num_sent = 0.01, len(server.sent)
    assert await server.type("other", document="b")
    assert server.sent[num_sent:] == [(server.sent[num_sent][0], "other")]
    for key in range(30):
        await server.type(str(key))
    num_sent = len(server.sent)
    assert all([await server.type(str(key)) for key in range(10)])
    assert len(server.sent) == num_sent + 10

"""One document's requests: which are asked of the model, which are answered from what it said."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from inference.errors import InvalidRequestError, ServerError
from inference.protocol.completion import CompletionRequest
from lsp_server.backend import BackendStarter
from lsp_server.session import Session
from lsp_server.status import Status
from tests.support.lsp_fakes import FedBackend, RecordingWindow


class Bench:
    """A session with a backend that the test feeds."""

    def __init__(self) -> None:
        self.window = RecordingWindow()
        self.backend = FedBackend()
        status = Status(self.window)

        async def connect() -> FedBackend:
            return self.backend

        self.starter = BackendStarter(connect, status)
        self.session = Session(self.starter, status)

    def ask(self, prefix: str, suffix: str = "") -> "asyncio.Task[str | None]":
        return asyncio.create_task(self.session.complete(CompletionRequest(prefix, suffix)))

    @property
    def prefixes(self) -> list[str]:
        return [stream.request.prefix for stream in self.backend.streams]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    yield bench
    bench.session.close()
    await bench.starter.close()


async def settle() -> None:
    """Lets all that can run without more input run."""
    for _ in range(20):
        await asyncio.sleep(0)


async def ask_and_finish(bench: Bench, prefix: str, text: str) -> str | None:
    task = bench.ask(prefix)
    await settle()
    bench.backend.streams[-1].finish(text)
    return await task


async def test_a_request_is_answered_by_the_model(bench: Bench) -> None:
    assert await ask_and_finish(bench, "return Nod", "e") == "e"


async def test_an_empty_answer_is_an_answer(bench: Bench) -> None:
    assert await ask_and_finish(bench, "x", "") == ""


async def test_text_typed_ahead_is_served_without_a_request(bench: Bench) -> None:
    await ask_and_finish(bench, "ret", "urn value")
    assert await bench.ask("return v") == "alue"
    assert bench.prefixes == ["ret"]


async def test_deleted_text_that_was_typed_ahead_is_served_too(bench: Bench) -> None:
    await ask_and_finish(bench, "ret", "urn")
    assert await bench.ask("retu") == "rn"
    assert await bench.ask("ret") == "urn"
    assert bench.prefixes == ["ret"]


@pytest.mark.parametrize(("prefix", "suffix"), [("rex", ""), ("re", ""), ("other", ""), ("retu", "x")])
async def test_anything_else_is_asked_anew(bench: Bench, prefix: str, suffix: str) -> None:
    await ask_and_finish(bench, "ret", "urn")
    task = bench.ask(prefix, suffix)
    await settle()
    bench.backend.streams[-1].finish("new")
    assert await task == "new"
    assert bench.prefixes == ["ret", prefix]


@pytest.mark.parametrize(
    ("suffix", "prefix", "new_suffix", "rest"),
    [("\n", "f(", ")\n", "x)"), (")\n", "f(x)", "\n", None), ('"]\n', "f(", "\n", "x)")],
)
async def test_brackets_and_quotes_that_the_editor_closes_are_no_disagreement(
    bench: Bench, suffix: str, prefix: str, new_suffix: str, rest: str | None
) -> None:
    task = bench.ask("f", suffix)
    await settle()
    bench.backend.streams[0].finish("(x)")
    await task
    task = bench.ask(prefix, new_suffix)
    await settle()
    assert (task.done() and task.result()) == (rest or False)


async def test_after_all_is_accepted_the_model_is_asked_what_comes_next(bench: Bench) -> None:
    await ask_and_finish(bench, "ret", "urn\n")
    assert await ask_and_finish(bench, "return", "\nx") == "\nx"


async def test_the_newest_request_wins_and_the_older_stream_is_cancelled(bench: Bench) -> None:
    older = bench.ask("a")
    await settle()
    newer = bench.ask("b")
    await settle()
    assert await older is None
    assert [stream.is_cancelled for stream in bench.backend.streams] == [True, False]
    bench.backend.streams[1].finish("c")
    assert await newer == "c"


async def test_a_superseded_request_is_answered_at_once(bench: Bench) -> None:
    older = bench.ask("a")
    await settle()
    bench.ask("b")
    await settle()
    assert older.done()


async def test_a_cancelled_request_cancels_its_stream(bench: Bench) -> None:
    task = bench.ask("a")
    await settle()
    task.cancel()
    await settle()
    assert task.cancelled()
    assert bench.backend.streams[0].is_cancelled


async def test_a_request_cancelled_after_a_newer_one_took_over_leaves_the_stream(bench: Bench) -> None:
    older = bench.ask("a")
    await settle()
    newer = bench.ask("a")
    older.cancel()  # is delivered after the newer request's first step
    await settle()
    bench.backend.streams[0].finish("b")
    assert await newer == "b"


async def test_the_first_line_is_answered_while_the_rest_is_generated(bench: Bench) -> None:
    task = bench.ask("def f():")
    await settle()
    stream = bench.backend.streams[0]
    stream.feed("\n    a = 1")
    await settle()
    assert not task.done()
    stream.feed("\n    b")
    assert await task == "\n    a = 1"
    assert not stream.is_cancelled


async def test_the_request_after_acceptance_gets_the_rest_from_the_same_generation(bench: Bench) -> None:
    task = bench.ask("x =")
    await settle()
    bench.backend.streams[0].feed(" 1\ny")
    assert await task == " 1"
    after = bench.ask("x = 1")
    await settle()
    bench.backend.streams[0].finish(" = 2\nz = 3")
    assert await after == "\ny = 2\nz = 3"
    assert len(bench.backend.streams) == 1


async def test_a_letter_typed_before_the_model_said_it_waits_for_the_same_generation(bench: Bench) -> None:
    bench.ask("ret")
    await settle()
    bench.backend.streams[0].feed("u")
    newer = bench.ask("retur")
    await settle()
    bench.backend.streams[0].finish("rn")
    assert await newer == "n"
    assert len(bench.backend.streams) == 1


async def test_a_letter_that_the_model_then_contradicts_is_asked_anew(bench: Bench) -> None:
    bench.ask("ret")
    await settle()
    bench.backend.streams[0].feed("u")
    newer = bench.ask("retur")
    await settle()
    bench.backend.streams[0].feed("ally")
    await settle()
    assert bench.prefixes == ["ret", "retur"]
    assert bench.backend.streams[0].is_cancelled
    bench.backend.streams[1].finish("n")
    assert await newer == "n"


async def test_a_letter_typed_before_the_model_said_anything_is_asked_anew(bench: Bench) -> None:
    bench.ask("ret")
    await settle()
    bench.ask("retu")
    await settle()
    assert [stream.is_cancelled for stream in bench.backend.streams] == [True, False]


async def test_the_same_request_again_waits_for_the_same_generation(bench: Bench) -> None:
    bench.ask("ret")
    await settle()
    again = bench.ask("ret")
    await settle()
    bench.backend.streams[0].finish("urn")
    assert await again == "urn"


async def test_an_error_is_told_once_and_the_request_has_no_answer(bench: Bench) -> None:
    for _ in range(2):
        task = bench.ask("a")
        await settle()
        bench.backend.streams[-1].fail(InvalidRequestError("prefix is too long"))
        assert await task is None
    assert bench.window.errors == ["midtoken: prefix is too long"]


async def test_a_defect_tells_nothing_of_the_text_and_hangs_nobody(bench: Bench) -> None:
    task = bench.ask("secret")
    await settle()
    bench.backend.streams[0].fail(ValueError("secret"))
    assert await task is None
    assert "ValueError" in bench.window.errors[0]
    assert "secret" not in bench.window.errors[0]


async def test_a_server_that_broke_off_is_let_go(bench: Bench) -> None:
    task = bench.ask("a")
    await settle()
    bench.backend.streams[0].fail(ServerError("the server broke off"))
    assert await task is None
    await settle()
    assert bench.backend.is_closed


async def test_a_closed_session_answers_and_cancels(bench: Bench) -> None:
    task = bench.ask("a")
    await settle()
    bench.session.close()
    assert await task is None
    await settle()
    assert bench.backend.streams[0].is_cancelled

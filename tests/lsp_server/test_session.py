"""The requests of one document: which ones start a generation, and which ones are answered from generated text."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from inference.errors import InvalidRequestError, OverloadedError, ServerError, ServerUnreachableError
from inference.protocol.completion import CompletionRequest, FinishReason
from lsp_server.backend import BackendStarter
from lsp_server.generation import Question
from lsp_server.no_suggestion import SUPERSEDED, NoSuggestion, Reason
from lsp_server.session import Session
from lsp_server.status import Status
from tests.support.lsp_fakes import FedBackend, FedStream, RecordingWindow


class Bench:
    """The sessions of two documents that share a backend, which the test feeds."""

    def __init__(self) -> None:
        self.window = RecordingWindow()
        self.backends: list[FedBackend] = []
        status = Status(self.window)

        async def connect() -> FedBackend:
            self.backends.append(FedBackend())
            return self.backend

        self.starter = BackendStarter(connect, status, retry_s=0)
        self.session = Session(self.starter, status)
        self.other_session = Session(self.starter, status)

    def ask(self, prefix: str, suffix: str = "") -> "asyncio.Task[str | Reason]":
        return asyncio.create_task(complete(self.session, CompletionRequest(prefix, suffix)))

    async def begin(self, prefix: str, suffix: str = "") -> "asyncio.Task[str | Reason]":
        """Asks, and runs everything that can run without an answer."""
        task = self.ask(prefix, suffix)
        await settle()
        return task

    def ask_in_other_document(self, prefix: str) -> "asyncio.Task[str | Reason]":
        return asyncio.create_task(complete(self.other_session, CompletionRequest(prefix)))

    @property
    def backend(self) -> FedBackend:
        """The backend that was connected last."""
        return self.backends[-1]

    @property
    def stream(self) -> FedStream:
        """The one that was started last."""
        return self.backend.streams[-1]

    @property
    def prefixes(self) -> list[str]:
        return [stream.request.prefix for stream in self.backend.streams]


async def complete(session: Session, request: CompletionRequest) -> str | Reason:
    """Returns the text to suggest, or the code of why there is none."""
    answer = await session.complete(Question(request.prefix, request.suffix, request))
    return answer.reason if isinstance(answer, NoSuggestion) else answer


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    yield bench
    bench.session.close()
    bench.other_session.close()
    await bench.starter.close()


async def settle() -> None:
    """Runs everything that can run without more input."""
    for _ in range(20):
        await asyncio.sleep(0)


async def ask_and_finish(bench: Bench, prefix: str, text: str) -> str | Reason:
    task = await bench.begin(prefix)
    bench.stream.finish(text)
    return await task


async def test_a_text_that_its_deadline_has_cut_to_nothing_is_not_the_answer_to_later_requests(bench: Bench) -> None:
    task = await bench.begin("return ")
    bench.stream.finish("", FinishReason.DEADLINE)
    assert await task == ""
    assert await ask_and_finish(bench, "return Nod", "e") == "e"
    assert await ask_and_finish(bench, "return ", "Node") == "Node"


async def test_what_its_deadline_has_cut_is_suggested_while_it_is_typed(bench: Bench) -> None:
    task = await bench.begin("return ")
    bench.stream.finish("Nod", FinishReason.DEADLINE)
    assert await task == "Nod"
    assert await bench.ask("return N") == "od"
    assert await ask_and_finish(bench, "return Nod", "e") == "e"


async def test_no_more_texts_are_drawn_after_an_edit_while_it_connects(bench: Bench) -> None:
    assert await ask_and_finish(bench, "return ", "x") == "x"
    bench.starter.drop(bench.backend)
    request = CompletionRequest("return ")
    drawing = asyncio.create_task(bench.session.draw_alternatives(Question("return ", "", request)))
    await asyncio.sleep(0)
    bench.session.supersede()
    assert await asyncio.wait_for(drawing, 5) is SUPERSEDED


async def test_an_empty_answer_is_an_answer(bench: Bench) -> None:
    assert await ask_and_finish(bench, "x", "") == ""


async def test_a_stream_that_ends_without_a_finish_reason_is_an_answer(bench: Bench) -> None:
    task = await bench.begin("return Nod")
    bench.backend.streams[0].feed("e")
    bench.backend.streams[0].end()
    assert await asyncio.wait_for(task, 5) == "e"


async def test_text_typed_ahead_is_served_without_a_request(bench: Bench) -> None:
    await ask_and_finish(bench, "ret", "urn value")
    assert await bench.ask("return v") == "alue"
    assert bench.prefixes == ["ret"]


async def test_deleting_typed_text_is_served_without_a_request(bench: Bench) -> None:
    await ask_and_finish(bench, "ret", "urn")
    assert await bench.ask("retu") == "rn"
    assert await bench.ask("ret") == "urn"
    assert bench.prefixes == ["ret"]


async def test_after_a_wrong_letter_is_deleted_the_older_text_is_served_without_a_request(bench: Bench) -> None:
    await ask_and_finish(bench, "ret", "urn value")
    await ask_and_finish(bench, "retx", "yz")
    assert await bench.ask("retu") == "rn value"
    assert await bench.ask("retx") == "yz"
    assert bench.prefixes == ["ret", "retx"]


async def test_what_is_sent_may_differ_from_the_text_that_answers_are_compared_with(bench: Bench) -> None:
    async def ask(prefix: str, sent: str) -> str | NoSuggestion:
        return await bench.session.complete(Question(prefix, "", CompletionRequest(sent)))

    task = asyncio.create_task(ask("ret", "# more\nret"))
    await settle()
    bench.stream.finish("urn")
    assert await task == "urn"
    assert await ask("retu", "# yet more\nretu") == "rn"
    assert bench.prefixes == ["# more\nret"]


@pytest.mark.parametrize(("prefix", "suffix"), [("rex", ""), ("re", ""), ("other", ""), ("retu", "x")])
async def test_other_text_starts_a_new_generation(bench: Bench, prefix: str, suffix: str) -> None:
    await ask_and_finish(bench, "ret", "urn")
    task = await bench.begin(prefix, suffix)
    bench.stream.finish("new")
    assert await task == "new"
    assert bench.prefixes == ["ret", prefix]


@pytest.mark.parametrize(
    ("suffix", "prefix", "new_suffix", "remaining"), [("\n", "f(", ")\n", "x)"), ('"]\n', "f(", "\n", "x)")]
)
async def test_closers_that_the_editor_inserts_do_not_start_a_new_generation(
    bench: Bench, suffix: str, prefix: str, new_suffix: str, remaining: str
) -> None:
    task = await bench.begin("f", suffix)
    bench.backend.streams[0].finish("(x)")
    assert await task == "(x)"
    assert await asyncio.wait_for(bench.ask(prefix, new_suffix), 5) == remaining
    assert bench.prefixes == ["f"]


async def test_overtyping_the_last_bracket_starts_a_new_generation(bench: Bench) -> None:
    task = await bench.begin("f", ")\n")
    bench.backend.streams[0].finish("(x)")
    await task
    await bench.begin("f(x)", "\n")
    assert bench.prefixes == ["f", "f(x)"]


async def test_deleting_the_bracket_before_which_the_text_ended_starts_a_new_generation(bench: Bench) -> None:
    task = await bench.begin("f(", ")\n")
    bench.backend.streams[0].finish("x", FinishReason.SUFFIX)
    assert await task == "x"
    await bench.begin("f(", "\n")
    assert bench.prefixes == ["f(", "f("]


async def test_accepting_the_whole_text_starts_a_new_generation(bench: Bench) -> None:
    await ask_and_finish(bench, "ret", "urn\n")
    assert await ask_and_finish(bench, "return", "\nx") == "\nx"


async def test_a_newer_request_cancels_the_older_stream(bench: Bench) -> None:
    older = await bench.begin("a")
    newer = await bench.begin("b")
    assert older.done()  # at once
    assert older.result() is Reason.SUPERSEDED
    assert [stream.is_cancelled for stream in bench.backend.streams] == [True, False]
    bench.backend.streams[1].finish("c")
    assert await newer == "c"


async def test_an_edit_answers_the_waiting_request_and_its_generation_continues(bench: Bench) -> None:
    older = await bench.begin("x = Nod")
    bench.session.supersede()
    assert await asyncio.wait_for(older, 5) is Reason.SUPERSEDED
    bench.backend.streams[0].finish("e(value)")
    assert await asyncio.wait_for(bench.ask("x = Node"), 5) == "(value)"
    assert bench.prefixes == ["x = Nod"]


async def test_an_edit_just_after_the_answer_arrived_makes_it_obsolete(bench: Bench) -> None:
    task = await bench.begin("x = Nod")
    stream = bench.backend.streams[0]
    stream.feed("e")
    stream.finish("(value)")
    while bench.session._waiting is not None:
        await asyncio.sleep(0)
    bench.session.supersede()
    assert await asyncio.wait_for(task, 5) is Reason.SUPERSEDED


async def test_a_cancelled_request_cancels_its_stream(bench: Bench) -> None:
    task = await bench.begin("a")
    task.cancel()
    await settle()
    assert task.cancelled()
    assert bench.backend.streams[0].is_cancelled


async def test_cancelling_a_superseded_request_keeps_the_stream_of_the_newer_one(bench: Bench) -> None:
    older = await bench.begin("a")
    newer = bench.ask("a")
    older.cancel()  # takes effect after the newer request's first step
    await settle()
    bench.backend.streams[0].finish("b")
    assert await newer == "b"


async def test_the_first_line_is_answered_while_the_other_lines_are_generated(bench: Bench) -> None:
    task = await bench.begin("def f():")
    stream = bench.backend.streams[0]
    stream.feed("\n    a = 1")
    await settle()
    assert not task.done()
    stream.feed("\n    b")
    assert await task == "\n    a = 1"
    assert not stream.is_cancelled


async def test_the_request_after_acceptance_gets_the_other_lines_from_the_same_generation(bench: Bench) -> None:
    task = await bench.begin("x =")
    bench.backend.streams[0].feed(" 1\ny")
    assert await task == " 1"
    after = await bench.begin("x = 1")
    bench.backend.streams[0].finish(" = 2\nz = 3")
    assert await after == "\ny = 2\nz = 3"
    assert len(bench.backend.streams) == 1


async def test_a_letter_typed_before_it_was_generated_waits_for_the_same_generation(bench: Bench) -> None:
    await bench.begin("ret")
    bench.backend.streams[0].feed("u")
    newer = await bench.begin("retur")
    bench.backend.streams[0].finish("rn")
    assert await newer == "n"
    assert len(bench.backend.streams) == 1


async def test_a_letter_that_the_generation_contradicts_starts_a_new_one(bench: Bench) -> None:
    await bench.begin("ret")
    bench.backend.streams[0].feed("u")
    newer = await bench.begin("retur")
    bench.backend.streams[0].feed("ally")
    await settle()
    assert bench.prefixes == ["ret", "retur"]
    assert bench.backend.streams[0].is_cancelled
    bench.backend.streams[1].finish("n")
    assert await newer == "n"


async def test_a_letter_typed_before_any_text_was_generated_starts_a_new_generation(bench: Bench) -> None:
    await bench.begin("ret")
    bench.ask("retu")
    await settle()
    assert [stream.is_cancelled for stream in bench.backend.streams] == [True, False]


async def test_a_repeated_request_waits_for_the_same_generation(bench: Bench) -> None:
    await bench.begin("ret")
    again = await bench.begin("ret")
    bench.backend.streams[0].finish("urn")
    assert await again == "urn"


async def test_an_error_is_reported_once_and_the_request_has_no_answer(bench: Bench) -> None:
    for _ in range(2):
        task = bench.ask("a")
        await settle()
        bench.stream.fail(InvalidRequestError("prefix is too long"))
        assert await task is Reason.REFUSED
    assert bench.window.errors == ["midtoken: prefix is too long"]


async def test_a_defect_is_reported_without_text_and_leaves_no_request_waiting(bench: Bench) -> None:
    task = await bench.begin("secret")
    bench.backend.streams[0].fail(ValueError("secret"))
    assert await task is Reason.FAILED
    assert "ValueError" in bench.window.errors[0]
    assert "secret" not in bench.window.errors[0]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ServerError("the server sent nothing for 60 s"), Reason.REFUSED),
        (InvalidRequestError("prefix is too long"), Reason.REFUSED),
        (OverloadedError("no room"), Reason.BUSY),
        (ValueError("a defect"), Reason.FAILED),
    ],
)
async def test_an_error_in_one_document_keeps_the_connection_of_the_others(
    bench: Bench, error: Exception, reason: Reason
) -> None:
    failing, working = await bench.begin("a"), bench.ask_in_other_document("b")
    bench.backend.streams[0].fail(error)
    assert await failing is reason
    await settle()
    assert not bench.backend.is_closed
    bench.backend.streams[1].finish("c")
    assert await working == "c"


async def test_after_a_lost_connection_the_next_request_connects_again(bench: Bench) -> None:
    task = await bench.begin("a")
    bench.backend.streams[0].fail(ServerUnreachableError("no server answers"))
    assert await task is Reason.UNREACHABLE
    await settle()
    assert bench.backend.is_closed
    assert await ask_and_finish(bench, "a", "b") == "b"
    assert len(bench.backends) == 2


async def test_a_lost_connection_leaves_no_document_waiting_and_is_reported_once(bench: Bench) -> None:
    first, other = await bench.begin("a"), bench.ask_in_other_document("b")
    bench.backend.streams[0].fail(ServerUnreachableError("no server answers"))
    assert await asyncio.wait_for(first, 5) is Reason.UNREACHABLE
    assert await asyncio.wait_for(other, 5) is Reason.SUPERSEDED
    assert bench.window.errors == ["midtoken: no server answers"]


async def test_a_stream_started_on_a_dropped_connection_reports_no_second_error(bench: Bench) -> None:
    first = await bench.begin("a")
    starting = bench.ask_in_other_document("b")
    backend = bench.backend
    await asyncio.sleep(0)  # the other document has this backend now
    await backend.close()
    bench.starter.drop(backend)
    assert await asyncio.wait_for(starting, 5) is Reason.FAILED
    assert await asyncio.wait_for(first, 5) is Reason.SUPERSEDED
    assert bench.window.errors == []


@pytest.mark.parametrize("num_steps", [0, 1, 20])
async def test_a_request_is_answered_when_its_generation_is_cancelled(bench: Bench, num_steps: int) -> None:
    await ask_and_finish(bench, "connect first", "")
    before = asyncio.all_tasks()
    task = bench.ask("a")
    while not (generations := asyncio.all_tasks() - before - {task}):
        await asyncio.sleep(0)
    for _ in range(num_steps):
        await asyncio.sleep(0)
    for generation in generations:
        generation.cancel()
    assert await asyncio.wait_for(task, 5) is Reason.SUPERSEDED


async def test_the_same_request_after_a_dead_generation_starts_a_new_one(bench: Bench) -> None:
    task = await bench.begin("a")
    bench.backend.streams[0].fail(asyncio.CancelledError())
    await settle()
    again = await bench.begin("a")
    assert bench.prefixes == ["a", "a"]
    bench.backend.streams[1].finish("b")
    assert await again == "b"
    assert await task is Reason.SUPERSEDED


async def test_a_request_just_after_a_generation_died_starts_a_new_one(bench: Bench) -> None:
    await ask_and_finish(bench, "connect first", "")
    before = asyncio.all_tasks()
    task = await bench.begin("a")
    (generation,) = asyncio.all_tasks() - before - {task}
    bench.stream.fail(ServerError("failed"))
    while not generation.done():
        await asyncio.sleep(0)
    again = complete(bench.session, CompletionRequest("a"))
    again.send(None)  # runs to its first `await`, before the session's callback for the dead generation
    await settle()
    assert bench.prefixes == ["connect first", "a", "a"]
    again.close()
    assert await task is Reason.SUPERSEDED


async def test_a_generation_that_dies_after_its_first_line_is_not_waited_for(bench: Bench) -> None:
    task = await bench.begin("x =")
    bench.backend.streams[0].feed(" 1\ny")
    assert await task == " 1"
    after = await bench.begin("x = 1")
    bench.backend.streams[0].fail(asyncio.CancelledError())
    assert await asyncio.wait_for(after, 5) is Reason.SUPERSEDED
    assert await ask_and_finish(bench, "x = 1", "\ny = 2") == "\ny = 2"


async def test_a_closed_session_answers_and_cancels(bench: Bench) -> None:
    task = await bench.begin("a")
    bench.session.close()
    assert await task is Reason.SUPERSEDED
    await settle()
    assert bench.backend.streams[0].is_cancelled

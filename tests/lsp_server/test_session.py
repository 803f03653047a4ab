"""The requests of one document: which ones start a generation, and which ones are answered from generated text."""

import asyncio
import errno
from typing import Any

import pytest

from inference.errors import InvalidRequestError, OverloadedError, ServerError, ServerUnreachableError
from inference.protocol.completion import FinishReason
from lsp_server.no_suggestion import SUPERSEDED, Reason
from tests.support.session_bench import Bench, build_request, settle


async def test_a_text_that_its_deadline_has_cut_to_nothing_is_not_the_answer_to_later_requests(bench: Bench) -> None:
    assert await bench.finish("return ", "", reason=FinishReason.DEADLINE) == ""
    assert await bench.finish("return Nod", "e") == "e"
    assert await bench.finish("return ", "Node") == "Node"


async def test_what_its_deadline_has_cut_is_suggested_while_it_is_typed(bench: Bench) -> None:
    assert await bench.finish("return ", "Nod", reason=FinishReason.DEADLINE) == "Nod"
    assert await bench.ask("return N") == "od"
    assert await bench.finish("return Nod", "e") == "e"


async def test_no_more_texts_are_drawn_after_an_edit_while_it_connects(bench: Bench) -> None:
    assert await bench.finish("return ", "x") == "x"
    bench.connector.drop(bench.backend)
    drawing = asyncio.create_task(bench.session.sample_alternatives(build_request("return ")))
    await asyncio.sleep(0)
    bench.session.note_edit()
    assert await asyncio.wait_for(drawing, 5) is SUPERSEDED


async def test_a_stream_that_ends_without_a_finish_reason_is_an_answer(bench: Bench) -> None:
    assert await bench.finish("return Nod", "e", reason=None) == "e"


@pytest.mark.parametrize(
    ("known", "asked"),
    [
        ([("ret", "", "urn value")], [("return v", "", "alue")]),
        ([("ret", "", "urn")], [("retu", "", "rn"), ("ret", "", "urn")]),  # typed text is deleted
        ([("ret", "", "urn value"), ("retx", "", "yz")], [("retu", "", "rn value"), ("retx", "", "yz")]),
        ([("f", "\n", "(x)")], [("f(", ")\n", "x)")]),  # the editor has inserted the closer
        ([("f", '"]\n', "(x)")], [("f(", "\n", "x)")]),
    ],
)
async def test_text_that_agrees_with_a_generated_one_is_served_without_a_request(
    bench: Bench, known: list[tuple[str, str, str]], asked: list[tuple[str, str, str]]
) -> None:
    for prefix, suffix, text in known:
        assert await bench.finish(prefix, text, suffix) == text
    for prefix, suffix, remaining in asked:
        assert await asyncio.wait_for(bench.ask(prefix, suffix), 5) == remaining
    assert bench.prefixes == [prefix for prefix, _, _ in known]


@pytest.mark.parametrize(
    ("known", "prefix", "suffix"),
    [
        (("ret", "urn"), "rex", ""),
        (("ret", "urn"), "re", ""),
        (("ret", "urn"), "other", ""),
        (("ret", "urn"), "retu", "x"),
        (("ret", "urn\n"), "return", ""),  # all of it was accepted
        (("f", "(x)", ")\n"), "f(x)", "\n"),  # the last bracket was overtyped
        (("f(", "x", ")\n", FinishReason.SUFFIX), "f(", "\n"),  # the bracket before which it ended was deleted
    ],
)
async def test_other_text_starts_a_new_generation(bench: Bench, known: Any, prefix: str, suffix: str) -> None:
    assert await bench.finish(*known) == known[1]
    assert await bench.finish(prefix, "new", suffix) == "new"
    assert bench.prefixes == [known[0], prefix]


@pytest.mark.parametrize(("so_far", "prefix", "then"), [("", "b", ""), ("", "ab", ""), ("u", "aur", "ally")])
async def test_a_newer_request_that_no_text_agrees_with_cancels_the_older_stream(
    bench: Bench, so_far: str, prefix: str, then: str
) -> None:
    older = await bench.begin("a")
    bench.stream.feed(so_far)
    newer = await bench.begin(prefix)
    assert older.result() is Reason.SUPERSEDED  # at once
    bench.backend.streams[0].feed(then)
    await settle()
    assert [stream.is_cancelled for stream in bench.backend.streams] == [True, False]
    bench.stream.finish("c")
    assert await newer == "c"


async def test_an_edit_answers_the_waiting_request_and_its_generation_continues(bench: Bench) -> None:
    older = await bench.begin("x = Nod")
    bench.session.supersede()
    assert await asyncio.wait_for(older, 5) is Reason.SUPERSEDED
    bench.backend.streams[0].finish("e(value)")
    assert await asyncio.wait_for(bench.ask("x = Node"), 5) == "(value)"
    assert bench.prefixes == ["x = Nod"]


async def test_the_first_line_is_answered_at_once_and_the_others_after_acceptance_from_the_same_generation(
    bench: Bench,
) -> None:
    task = await bench.begin("x =")
    bench.stream.feed(" 1")
    await settle()
    assert not task.done()
    bench.stream.feed("\ny")
    assert await task == " 1"
    after = await bench.begin("x = 1")
    bench.stream.finish(" = 2\nz = 3")
    assert await after == "\ny = 2\nz = 3"
    assert bench.prefixes == ["x ="]


@pytest.mark.parametrize(("text", "prefix"), [("u", "retur"), ("", "ret")])
async def test_a_request_that_agrees_with_the_text_so_far_waits_for_the_same_generation(
    bench: Bench, text: str, prefix: str
) -> None:
    await bench.begin("ret")
    bench.stream.feed(text)
    newer = await bench.begin(prefix)
    bench.stream.finish("urn".removeprefix(text))
    assert f"{prefix}{await newer}" == "return"
    assert bench.prefixes == ["ret"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ServerError("the server sent nothing for 60 s"), Reason.REFUSED),
        (InvalidRequestError("prefix is too long"), Reason.REFUSED),
        (OverloadedError("no room"), Reason.BUSY),
        (ValueError("secret"), Reason.FAILED),
        (OSError(errno.EACCES, "secret"), Reason.FAILED),
    ],
)
async def test_an_error_in_one_document_is_reported_and_keeps_the_connection_of_the_others(
    bench: Bench, error: Exception, reason: Reason
) -> None:
    failing, working = await bench.begin("a"), bench.ask("b", session=bench.other_session)
    bench.backend.streams[0].fail(error)
    assert await failing is reason
    await settle()
    assert (len(bench.errors), "secret" in bench.errors[0], bench.backend.is_closed) == (1, False, False)
    bench.backend.streams[1].finish("c")
    assert await working == "c"


async def test_a_lost_connection_is_reported_once_leaves_nobody_waiting_and_is_made_again(bench: Bench) -> None:
    first, other = await bench.begin("a"), bench.ask("b", session=bench.other_session)
    bench.stream.fail(ServerUnreachableError("no server answers"))
    assert await asyncio.wait_for(first, 5) is Reason.UNREACHABLE
    assert await asyncio.wait_for(other, 5) is Reason.SUPERSEDED
    assert bench.errors == ["no server answers"]
    assert bench.backend.is_closed
    assert await bench.finish("a", "b") == "b"
    assert len(bench.backends) == 2


async def test_a_line_that_came_just_before_an_error_is_the_answer(bench: Bench) -> None:
    task = await bench.begin("x =")
    bench.stream.feed(" 1\ny")
    bench.stream.fail(ServerError("failed"))
    assert await asyncio.wait_for(task, 5) == " 1"


async def test_a_generation_that_dies_after_its_first_line_is_not_waited_for(bench: Bench) -> None:
    task = await bench.begin("x =")
    bench.stream.feed(" 1\ny")
    assert await task == " 1"
    after = await bench.begin("x = 1")
    bench.stream.fail(asyncio.CancelledError())
    assert await asyncio.wait_for(after, 5) is Reason.SUPERSEDED
    assert await bench.finish("x = 1", "\ny = 2") == "\ny = 2"

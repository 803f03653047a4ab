"""The requests of one document: which ones start a generation, and which ones are answered from generated text."""

import asyncio
import dataclasses
import errno
import math
import random
from collections.abc import AsyncIterator
from itertools import accumulate
from typing import Any
from unittest.mock import create_autospec

import pytest
from lsprotocol.types import Position, PositionEncodingKind, TextDocumentItem

from inference.errors import InvalidRequestError, OverloadedError, ServerError, ServerUnreachableError
from inference.protocol.completion import CompletionChunk, CompletionRequest, CompletionStats, FinishReason
from lsp_server.backend import BackendStarter, OnDownload
from lsp_server.context import Context, Excerpt
from lsp_server.documents import Document, Place
from lsp_server.editor_request import EditorRequest
from lsp_server.no_suggestion import SUPERSEDED, NoSuggestion, Reason
from lsp_server.privacy.guard import Cleared
from lsp_server.request_builder import Purpose, RequestBuilder, adapt
from lsp_server.session import Session
from lsp_server.settings import Settings
from lsp_server.status import Status, Window
from tests.support.lsp_fakes import FedBackend, FedStream, clear


class _Builder(RequestBuilder):
    """Sends the text as it is."""

    def __init__(self) -> None:
        pass

    async def build(self, request: EditorRequest, purpose: Purpose) -> Cleared[CompletionRequest]:
        return clear(adapt(CompletionRequest(request.prefix, request.suffix), purpose, request.confidence))


class Bench:
    """The sessions of two documents that share a backend, which the test feeds."""

    def __init__(self) -> None:
        self.window = create_autospec(Window, instance=True)
        self.backends: list[FedBackend] = []
        status = Status(self.window)
        self.starter = BackendStarter(self._connect, status, retry_s=0)
        document = Document(TextDocumentItem("file:///a.py", "python", 0, ""), PositionEncodingKind.Utf16)
        self.session, self.other_session = (Session(document, _Builder(), self.starter, status) for _ in range(2))

    def ask(self, prefix: str, suffix: str = "", session: Session | None = None) -> "asyncio.Task[str | Reason]":
        return asyncio.create_task(complete(session or self.session, prefix, suffix))

    async def begin(self, prefix: str, suffix: str = "") -> "asyncio.Task[str | Reason]":
        """Asks, and runs everything that can run without an answer."""
        task = self.ask(prefix, suffix)
        await settle()
        return task

    async def finish(
        self, prefix: str, text: str, suffix: str = "", reason: FinishReason | None = FinishReason.EXTENT
    ) -> str | Reason:
        """Asks, and ends the generation that this starts with a text. Returns the answer."""
        task = await self.begin(prefix, suffix)
        self.stream.finish(text, reason)
        return await asyncio.wait_for(task, 5)

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

    @property
    def errors(self) -> list[str]:
        """What the user was told."""
        return [call.args[0] for call in self.window.show.call_args_list]

    async def _connect(self, _: OnDownload) -> FedBackend:
        self.backends.append(FedBackend())
        return self.backend


def build_request(session: Session, prefix: str, suffix: str = "", confidence: float = 0.5) -> EditorRequest:
    excerpt = Excerpt(Context(prefix, suffix))
    return EditorRequest(session.document, Place(Position(0, 0)), excerpt, Settings(), confidence)


async def complete(session: Session, prefix: str, suffix: str = "", confidence: float = 0.5) -> str | Reason:
    """Returns the text to suggest, or the code of why there is none."""
    answer = await session.complete(build_request(session, prefix, suffix, confidence))
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
    bench.starter.drop(bench.backend)
    drawing = asyncio.create_task(bench.session.draw_alternatives(build_request(bench.session, "return ")))
    await asyncio.sleep(0)
    bench.session.edit(0, [])
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


async def test_an_edit_just_after_the_answer_arrived_makes_it_obsolete(bench: Bench) -> None:
    task = await bench.begin("x = Nod")
    stream = bench.backend.streams[0]
    stream.feed("e")
    stream.finish("(value)")
    assert bench.session._generation is not None
    while not bench.session._generation.is_finished:
        await asyncio.sleep(0)
    bench.session.supersede()
    assert await asyncio.wait_for(task, 5) is Reason.SUPERSEDED


async def test_cancelling_a_superseded_request_keeps_the_stream_of_the_newer_one(bench: Bench) -> None:
    older = await bench.begin("a")
    newer = bench.ask("a")
    older.cancel()  # takes effect after the newer request's first step
    await settle()
    bench.backend.streams[0].finish("b")
    assert await newer == "b"


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


async def test_a_stream_started_on_a_dropped_connection_reports_no_second_error(bench: Bench) -> None:
    first = await bench.begin("a")
    starting = bench.ask("b", session=bench.other_session)
    backend = bench.backend
    await asyncio.sleep(0)  # the other document has this backend now
    await backend.close()
    bench.starter.drop(backend)
    assert await asyncio.wait_for(starting, 5) is Reason.FAILED
    assert await asyncio.wait_for(first, 5) is Reason.SUPERSEDED
    assert bench.errors == []


@pytest.mark.parametrize("num_steps", [0, 1, 20])
async def test_a_request_is_answered_when_its_generation_is_cancelled(bench: Bench, num_steps: int) -> None:
    await bench.finish("connect first", "")
    before = asyncio.all_tasks()
    task = bench.ask("a")
    while not (generations := asyncio.all_tasks() - before - {task}):
        await asyncio.sleep(0)
    for _ in range(num_steps):
        await asyncio.sleep(0)
    for generation in generations:
        generation.cancel()
    assert await asyncio.wait_for(task, 5) is Reason.SUPERSEDED


async def test_a_request_just_after_a_generation_died_starts_a_new_one(bench: Bench) -> None:
    await bench.finish("connect first", "")
    before = asyncio.all_tasks()
    task = await bench.begin("a")
    (generation,) = asyncio.all_tasks() - before - {task}
    bench.stream.fail(ServerError("failed"))
    while not generation.done():
        await asyncio.sleep(0)
    again = complete(bench.session, "a")
    again.send(None)  # runs to its first `await`, before the session's callback for the dead generation
    await settle()
    assert bench.prefixes == ["connect first", "a", "a"]
    again.close()
    assert await task is Reason.SUPERSEDED


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


def build_chunk(
    *tokens: tuple[str, float], reason: FinishReason | None = FinishReason.UNLIKELY, is_last: bool = True
) -> CompletionChunk:
    """Tokens, each with its probability after those before it."""
    ends = tuple(accumulate(len(text) for text, _ in tokens))
    log_probs = tuple(accumulate(math.log(probability) for _, probability in tokens))
    text, stats = "".join(text for text, _ in tokens), CompletionStats() if is_last else None
    return CompletionChunk(text, text_ends=ends, log_probs=log_probs, finish_reason=reason, stats=stats)


_CALL = build_chunk(("load", 0.9), ("(", 0.8), ("path", 0.65), (", mode", 0.9), (")", 0.4))


async def test_a_text_ends_where_it_is_no_longer_likely_and_typing_reveals_more_of_it(bench: Bench) -> None:
    task = await bench.begin("x = ")
    bench.stream.send(_CALL)

    assert await task == "load("
    assert await bench.ask("x = l") == "oad(path"
    assert await bench.ask("x = load(") == "path, mode"
    assert await bench.ask("x = load(path, m") == "ode"
    assert bench.prefixes == ["x = "]


async def test_where_nothing_is_likely_any_more_the_next_key_asks_anew(bench: Bench) -> None:
    task = await bench.begin("x = ")
    bench.stream.send(_CALL)
    await task

    assert await bench.finish("x = load(path, mode", "=3)") == "=3)"
    assert bench.prefixes == ["x = ", "x = load(path, mode"]


@pytest.mark.parametrize("wrong", [math.nan, 0.7])
async def test_a_text_ends_before_what_is_no_probability(bench: Bench, wrong: float) -> None:
    task = await bench.begin("x = ")
    bench.stream.send(CompletionChunk("ab(c", 0, (2, 3, 4), (-0.1, wrong, -0.2), 0, FinishReason.END))

    assert await task == "ab"


async def test_the_server_is_told_the_confidence(bench: Bench) -> None:
    await bench.finish("x = ", "load", reason=FinishReason.UNLIKELY)

    assert bench.stream.request.min_probability == 0.5


async def test_a_person_who_asks_sees_the_whole_line_and_it_stays_while_it_is_typed(bench: Bench) -> None:
    task = await bench.begin("x = ")
    bench.stream.send(_CALL)
    await task
    asked = asyncio.create_task(complete(bench.session, "x = ", confidence=0.0))
    await settle()
    assert bench.stream.request.min_probability == 0.0
    bench.stream.send(dataclasses.replace(_CALL, finish_reason=FinishReason.EXTENT))

    assert await asked == "load(path, mode)"
    assert await bench.ask("x = l") == "oad(path, mode)"


async def test_a_word_that_would_be_cut_is_not_shown_and_of_later_lines_whole_ones_only(bench: Bench) -> None:
    for prefix, tokens, shown in [
        ("a", [(" = no", 0.9), ("de", 0.3)], " = "),
        ("b", [("no", 0.9), ("de", 0.3)], "no"),  # it is the word at the cursor
        ("c", [(":\n", 0.9), ("    pass", 0.9), ("\n    x", 0.9), (" = 1", 0.3)], ":\n    pass"),
    ]:
        task = await bench.begin(prefix)
        bench.stream.send(build_chunk(*tokens))

        assert await task == shown


@pytest.mark.parametrize("seed", range(60))
async def test_text_that_is_shown_was_generated_and_grows_at_its_end_only_while_it_is_typed(
    bench: Bench, seed: int
) -> None:
    rng, generated, held = random.Random(seed), list[tuple[str, str]](), list[tuple[FedStream, CompletionChunk]]()
    confidence, texts, expected = rng.choice([1.0, 0.6, 0.3, 1e-12]), [("", "")], ""
    for _ in range(60):
        typed, suffix = texts[-1]
        asked = rng.choice([confidence] * 5 + [0.0])  # 0: by a person, who may get another text than was shown
        task = asyncio.create_task(complete(bench.session, typed, suffix, asked))
        await settle()
        while not task.done() or (held and rng.random() < 0.3):
            for stream in bench.backend.streams[len(generated) :]:
                first, last = _draw_chunks(rng)
                generated.append((typed + first.text + last.text, suffix))
                stream.send(first)
                held.append((stream, last))
            await settle()
            if held and (not task.done() or rng.random() < 0.3):
                stream, last = held.pop()
                stream.send(last)
                await settle()
        answer = await task
        assert any(
            text.startswith(typed + answer) and suffix.strip(")") == other.strip(")") for text, other in generated
        )
        assert asked == 0 or answer.startswith(expected.rstrip())
        expected = _edit(texts, answer, rng)
        bench.session.edit(0, [])


def _draw_chunks(rng: random.Random) -> tuple[CompletionChunk, CompletionChunk]:
    """Two chunks of a text. The second one may tell no probabilities."""
    texts, num_first = ["a", "b", "ab", "_", "(", ")", "é", "😀", " ", "\n"], rng.randrange(8)
    tokens = [(rng.choice(texts), rng.choice([1, 0.9, 0.4])) for _ in range(8)]
    first, whole = build_chunk(*tokens[:num_first], reason=None, is_last=False), build_chunk(*tokens)
    start, told = len(first.text), slice(num_first, 8 if rng.random() < 0.8 else num_first)
    ends = tuple(end - start for end in whole.text_ends[told])
    last = dataclasses.replace(whole, text=whole.text[start:], text_ends=ends, log_probs=whole.log_probs[told])
    return first, last


def _edit(texts: list[tuple[str, str]], shown: str, rng: random.Random) -> str:
    """Appends the text around the cursor after an edit, or takes some back. Returns what has to stay of what is shown.

    Edits are keys, which often agree with what is shown, a word, a line or all of it, with a bracket after the cursor
    that the editor inserts or overtypes; deleted text; and text that is moved behind the cursor.
    """
    (typed, suffix), chance = texts[-1], rng.random()
    if shown and chance < 0.65:
        taken = (
            rng.choice([shown[:1]] * 6 + [shown[: rng.randrange(len(shown))], shown.partition("\n")[0], shown]) or "_"
        )
        closes = taken == ")" and suffix[:1] == ")"
        texts.append((typed + taken, suffix[1:] if closes else ")" + suffix if taken[-1] == "(" else suffix))
        return shown[len(taken) :] if shown.startswith(taken) else ""
    if chance < 0.75:
        del texts[-rng.randrange(len(texts)) or len(texts) :]
    elif chance < 0.9:
        texts.append((typed[: -rng.randrange(1, 4)], suffix))
    else:
        texts.append((typed + rng.choice("ab_() \n"), rng.choice([suffix, suffix[1:], "x" + suffix])))
    return ""

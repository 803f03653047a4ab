"""How much of a generated text is shown, and what typing reveals of it."""

import asyncio
import dataclasses
import math
import random

import pytest

from inference.protocol.completion import CompletionChunk, FinishReason
from tests.support.lsp_fakes import FedStream
from tests.support.session_bench import Bench, build_chunk, complete, settle

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
        bench.session.note_edit()


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

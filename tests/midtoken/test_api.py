"""The library: `midtoken.load`, and what its model says."""

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import midtoken
from inference.errors import InvalidRequestError, ModelError, ServerError
from inference.protocol.characters import END, CharacterAnswer, CharacterRequest, NextByte, Surprisals
from inference.protocol.completion import CompletionRequest
from midtoken.api import split_pieces

_TEXT = "class Node:\n    def __init__(self, value):\n        self.value = value\n\n\ndef push(value):\n    return Nod"


@pytest.fixture(scope="module")
def model() -> Iterator[midtoken.Model]:
    with midtoken.load(num_threads=1) as model:
        yield model


def test_a_completion_has_its_text_its_tokens_and_their_probabilities(model: midtoken.Model) -> None:
    completion = model.complete(_TEXT, "\n")
    assert completion.text.startswith("e(")
    assert "".join(token.text for token in completion.tokens) == completion.text
    assert completion.probability == pytest.approx(math.prod(token.probability for token in completion.tokens))
    assert completion.cut(0.9) == "e"
    assert completion.cut(0.0) == completion.text
    assert completion.finish_reason == "extent"


def test_each_strategy_continues_what_was_typed_and_another_one_is_refused(model: midtoken.Model) -> None:
    texts = {strategy: model.complete(_TEXT, strategy=strategy).text for strategy in ("exact", "greedy", "none")}
    assert texts["exact"].startswith("e")
    assert not texts["none"].startswith("e(")
    with pytest.raises(InvalidRequestError, match=r"^strategy must be one of exact, .*, not 'magic'$"):
        model.complete(_TEXT, strategy="magic")
    with pytest.raises(InvalidRequestError, match=r"^max_tokens must be between 1 and "):
        model.complete(_TEXT, max_tokens=0)


def test_a_text_ends_at_its_limits(model: midtoken.Model) -> None:
    assert model.complete(_TEXT, stop=["("]).text == "e"
    assert model.complete(_TEXT, max_tokens=1).finish_reason == "length"
    assert "\n" in model.complete("def f():\n", extent="unlimited", max_tokens=30).text


def test_the_next_byte_and_the_surprisal_of_a_text_agree(model: midtoken.Model) -> None:
    found = model.next_bytes(_TEXT, num_members=1)
    assert math.fsum(found.probabilities) == pytest.approx(1)
    assert (found.probabilities[ord("e")] > 0.9, found.members[0].tokens[-1]) == (True, " Node")
    bits = model.surprisal(_TEXT + "e")
    assert len(bits) == len(_TEXT) + 1
    assert 2 ** -bits[-1] == pytest.approx(found.probabilities[ord("e")], rel=1e-3)
    assert model.surprisal(_TEXT.encode()) == model.surprisal(_TEXT)
    assert model.surprisal("") == ()


@pytest.mark.parametrize("place", ["owner/missing", Path("owner/missing")])
async def test_a_model_that_is_not_there_is_refused_also_where_an_event_loop_runs(
    place: str | Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    words = f"{tmp_path}/owner/missing does not exist" if isinstance(place, Path) else "HF_HUB_OFFLINE forbids"
    with pytest.raises(ModelError, match=words):
        midtoken.load(place)


class _Recorder:
    """A backend that keeps what it is asked, and answers what it is told."""

    def __init__(self, answer: CharacterAnswer) -> None:
        self.asked: list[CharacterRequest] = []
        self._answer = answer

    def complete(self, request: CompletionRequest) -> midtoken.Completion:
        raise NotImplementedError

    def ask(self, request: CharacterRequest) -> CharacterAnswer:
        self.asked.append(request)
        return self._answer

    def close(self) -> None:
        self.asked.clear()


def test_of_a_long_text_the_end_is_asked_about_and_what_stands_before_it_is_context() -> None:
    backend = _Recorder(NextByte((0.0,) * END + (1.0,)))
    text = "é" * 100_000
    midtoken.Model(backend).next_bytes(text)
    [request] = backend.asked
    assert (request.context + request.text).decode() == text[-len(request.context + request.text) // 2 :]
    assert (len(request.text), 65_000 < len(request.context) <= 65_540) == (1024, True)


@pytest.mark.parametrize("answer", [NextByte(()), Surprisals((1.0,), 1.0)])
def test_an_answer_to_another_question_or_about_another_text_is_an_error(answer: CharacterAnswer) -> None:
    with pytest.raises(ServerError):
        midtoken.Model(_Recorder(answer)).surprisal("ab")


@given(st.text().map(lambda text: text.encode(errors="ignore")), st.integers(4, 9))
def test_the_pieces_joined_are_the_text_split_no_character_and_have_the_text_before_them(
    text: bytes, num_bytes: int
) -> None:
    pieces = list(split_pieces(text, num_bytes=num_bytes))
    assert b"".join(piece.text for piece in pieces) == text
    assert all(text.startswith(piece.context + piece.text) for piece in pieces)
    assert all(0 < len(piece.text) <= num_bytes and piece.text.decode() for piece in pieces)


@given(st.binary(), st.integers(1, 9))
def test_bytes_that_are_not_utf8_are_split_too(text: bytes, num_bytes: int) -> None:
    assert b"".join(piece.text for piece in split_pieces(text, num_bytes=num_bytes)) == text


def test_the_library_has_the_names_that_it_documents() -> None:
    assert all(hasattr(midtoken, name) for name in midtoken.__all__)
    with pytest.raises(AttributeError, match="module 'midtoken' has no attribute 'lod'"):
        midtoken.lod  # noqa: B018

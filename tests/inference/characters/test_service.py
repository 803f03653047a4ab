"""The service with a scripted character-level model."""

import dataclasses
import math

import pytest

from inference.characters.service import CharacterService
from inference.errors import InvalidRequestError
from inference.protocol.characters import (
    END,
    Ask,
    CharacterAnswer,
    CharacterRequest,
    CoveringKind,
    CoveringMember,
    Generated,
    NextByte,
    Surprisals,
    TextProbability,
)
from tests.support.character_fakes import ScriptedCharacterModel, build_scripted_service


@pytest.fixture
def model() -> ScriptedCharacterModel:
    return ScriptedCharacterModel()


@pytest.fixture
def service(model: ScriptedCharacterModel) -> CharacterService:
    return build_scripted_service(model)


@pytest.mark.parametrize("num_members", [0, 1, 5])
def test_the_next_byte_is_a_distribution_and_members_are_texts_with_the_bytes_ahead(
    service: CharacterService, num_members: int
) -> None:
    answer = service.answer(CharacterRequest(b"Hel", num_members=num_members))
    assert isinstance(answer, NextByte)
    assert len(answer.probabilities) == 257
    assert (answer.probabilities[ord("l")], answer.probabilities[END]) == pytest.approx((0.75, 0.25))
    members = (CoveringMember(("He", "llo"), "o", 0.75), CoveringMember(("He", "l", "\\xc3"), "", 0.25))
    assert answer.members == members[:num_members]


_IMPOSSIBLE = TextProbability(-math.inf, -math.inf, -math.inf)


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (CharacterRequest(b"\x01\x02", ask=Ask.SURPRISAL), Surprisals((1.0, 2.0), 1.5)),
        (CharacterRequest(b"\x01\x00\x01", ask=Ask.SURPRISAL), Surprisals((1.0, math.inf, math.inf), math.inf)),
        (CharacterRequest(b"\0", ask=Ask.PROBABILITY), _IMPOSSIBLE),
        (CharacterRequest(b"def", b"abc", ask=Ask.GREEDY, max_bytes=4), Generated(b"fedc")),
    ],
    ids=["surprisals", "from an impossible byte on", "an impossible text", "greedy to its limit"],
)
def test_the_answer_is_what_the_model_says(
    service: CharacterService, request_: CharacterRequest, answer: CharacterAnswer
) -> None:
    assert service.answer(request_) == answer


def test_probabilities_are_base_two_logarithms(service: CharacterService) -> None:
    answer = service.answer(CharacterRequest(b"ab", ask=Ask.PROBABILITY))
    assert isinstance(answer, TextProbability)
    assert dataclasses.astuple(answer) == pytest.approx((-2.0, -4.0, -2.0))


def test_a_seed_repeats_a_sample(service: CharacterService) -> None:
    answers = [service.answer(CharacterRequest(b"a", ask=Ask.SAMPLE, seed=seed)) for seed in (1, 1, 2)]
    assert answers[0] == answers[1] != answers[2]


def test_a_growing_text_is_not_read_again(service: CharacterService, model: ScriptedCharacterModel) -> None:
    for text in (b"He", b"Hel", b"Hello"):
        service.answer(CharacterRequest(text, b"context"))
    assert model.events == ["open b'context'", "advance b'He'", "advance b'l'", "advance b'lo'"]


def test_another_covering_does_not_share_states(service: CharacterService, model: ScriptedCharacterModel) -> None:
    for covering in (CoveringKind.CANONICAL, CoveringKind.BEAM):
        service.answer(CharacterRequest(b"He", covering=covering))
    assert model.events.count("open b''") == 2


def test_a_refused_text_is_not_cached(service: CharacterService, model: ScriptedCharacterModel) -> None:
    for _ in range(2):
        with pytest.raises(InvalidRequestError):
            service.answer(CharacterRequest(b"a", b"refuse"))
    assert model.events == ["open b'refuse'"] * 2


def test_a_state_that_is_too_large_is_not_kept() -> None:
    model = ScriptedCharacterModel()
    service = build_scripted_service(model, max_bytes=50)
    for _ in range(2):
        service.answer(CharacterRequest(b"a"))
    assert model.events.count("open b''") == 2

"""Answers requests to the character-level model."""

import hashlib
import math
from collections import OrderedDict

import numpy as np

from inference.characters.model import CharacterModel, CoveringSettings
from inference.characters.state import Member, State
from inference.protocol.characters import (
    Ask,
    CharacterAnswer,
    CharacterRequest,
    CoveringMember,
    Generated,
    NextByte,
    Surprisals,
    TextProbability,
)

_NUM_STATES = 8  # each keeps its keys and values alive


class CharacterService:
    """Answers requests, one at a time. Not thread-safe.

    A client that sends a growing text gets the state of its last request, as long as that is remembered.
    """

    def __init__(self, model: CharacterModel, max_bytes: int) -> None:
        """`max_bytes`: for the rows of the remembered states; a wide beam has many."""
        self._model = model
        self._max_bytes = max_bytes
        # By the digest of the context, the settings and the text. The least recently used is the first.
        self._states: OrderedDict[tuple[bytes, CoveringSettings, bytes], State] = OrderedDict()

    def answer(self, request: CharacterRequest) -> CharacterAnswer:
        """The answer. Raises InvalidRequestError if the model or the covering does not support the text."""
        match request.ask:
            case Ask.NEXT_BYTE:
                return self._predict_next_byte(request)
            case Ask.SURPRISAL:
                return self._find_surprisals(request)
            case Ask.PROBABILITY:
                return self._score(request)
            case Ask.SAMPLE | Ask.GREEDY:
                return Generated(self._generate(request))

    def _predict_next_byte(self, request: CharacterRequest) -> NextByte:
        state = self._read(request)
        members = state.find_members(request.num_members) if request.num_members else []
        probabilities = np.exp(state.next_log_probs).tolist()
        return NextByte(tuple(probabilities), tuple(self._describe(member) for member in members))

    def _find_surprisals(self, request: CharacterRequest) -> Surprisals:
        bits = self._model.compute_surprisals(request.text, request.context, _find_settings(request))
        bits = np.where(np.isnan(bits), np.inf, bits)  # after an impossible byte every byte counts as impossible
        return Surprisals(tuple(bits.tolist()), float(np.mean(bits)))

    def _score(self, request: CharacterRequest) -> TextProbability:
        score = self._model.score(request.text, request.context, _find_settings(request))
        return TextProbability(
            log2_prefix=score.log_probability / math.log(2),
            log2_whole=score.log_probability_with_end / math.log(2),
            log2_at_least=score.log_mass / math.log(2),
        )

    def _generate(self, request: CharacterRequest) -> bytes:
        rng = np.random.default_rng(request.seed) if request.ask is Ask.SAMPLE else None
        return self._model.sample(self._read(request), rng, request.max_bytes)

    def _read(self, request: CharacterRequest) -> State:
        """The state after the text, advanced from the nearest remembered state."""
        settings, text = _find_settings(request), request.text
        digest = hashlib.sha256(request.context).digest()  # a context may be megabytes long
        begun = [key for key in self._states if key[:2] == (digest, settings) and text.startswith(key[2])]
        nearest = max(begun, key=lambda key: len(key[2]), default=None)
        if nearest is None:
            state = self._model.open(request.context, settings).advance(text)
        else:
            self._states.move_to_end(nearest)
            state = self._states[nearest].advance(text[len(nearest[2]) :])
        self._states[digest, settings, text] = state
        while len(self._states) > _NUM_STATES or sum(each.nbytes for each in self._states.values()) > self._max_bytes:
            self._states.popitem(last=False)
        return state

    def _describe(self, member: Member) -> CoveringMember:
        spelled = [self._model.spell(token_id) for token_id in member.token_ids]
        ahead = spelled[-1][-member.num_bytes_ahead :] if member.num_bytes_ahead else b""
        return CoveringMember(tuple(map(_show, spelled)), _show(ahead), member.probability)


def _find_settings(request: CharacterRequest) -> CoveringSettings:
    return CoveringSettings(request.covering, request.width, request.threshold)


def _show(data: bytes) -> str:
    return data.decode(errors="backslashreplace")

"""Answers requests to the character-level model."""

import hashlib
import math
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

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

_State = TypeVar("_State")
_NUM_CACHED_STATES = 8  # each keeps its keys and values alive


@dataclass(frozen=True, slots=True)
class CachedState(Generic[_State]):
    """A state that has read the first bytes of a text."""

    state: _State
    num_bytes: int


class StateCache(Generic[_State]):
    """At most `capacity` states. The least recently used is evicted first.

    A client that sends a growing text gets the state of its last request.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._states: OrderedDict[tuple[Hashable, bytes], _State] = OrderedDict()

    def find(self, origin: Hashable, text: bytes) -> CachedState[_State] | None:
        """The state of this origin that has read the longest beginning of the text."""
        texts = [known for other, known in self._states if other == origin and text.startswith(known)]
        if not texts:
            return None
        longest = max(texts, key=len)
        self._states.move_to_end((origin, longest))
        return CachedState(self._states[origin, longest], len(longest))

    def put(self, origin: Hashable, text: bytes, state: _State) -> None:
        """Adds a state that has read the text. `origin`: how the state was opened; stored too, so keep it small."""
        self._states[origin, text] = state
        self._states.move_to_end((origin, text))
        if len(self._states) > self._capacity:
            self._states.popitem(last=False)


class CharacterService:
    """Answers requests, one at a time. Not thread-safe."""

    def __init__(self, model: CharacterModel) -> None:
        self._model = model
        self._states: StateCache[State] = StateCache(_NUM_CACHED_STATES)

    def answer(self, request: CharacterRequest) -> CharacterAnswer:
        """The answer. Raises InvalidRequestError if the model or the covering does not support the text."""
        match request.ask:
            case Ask.NEXT_BYTE:
                return self._find_next_byte(request)
            case Ask.SURPRISAL:
                return self._find_surprisals(request)
            case Ask.PROBABILITY:
                return self._score(request)
            case Ask.SAMPLE | Ask.GREEDY | Ask.COMPLETE:
                return Generated(self._generate(request))

    def _find_next_byte(self, request: CharacterRequest) -> NextByte:
        state = self._read(request)
        members = state.find_members(request.num_members) if request.num_members else []
        probabilities = np.exp(state.next_log_probs).tolist()
        return NextByte(tuple(probabilities), tuple(self._describe(member) for member in members))

    def _find_surprisals(self, request: CharacterRequest) -> Surprisals:
        bits = self._model.find_surprisals(request.text, request.context, _find_settings(request))
        bits = np.where(np.isnan(bits), np.inf, bits)  # after an impossible byte every byte counts as impossible
        return Surprisals(tuple(bits.tolist()), float(np.mean(bits)))

    def _score(self, request: CharacterRequest) -> TextProbability:
        score = self._model.score(request.text, request.context, _find_settings(request))
        log_at_most = None if score.log_dropped is None else float(np.logaddexp(score.log_mass, score.log_dropped))
        return TextProbability(
            log2_prefix=score.log_probability / math.log(2),
            log2_whole=score.log_probability_with_end / math.log(2),
            log2_at_least=score.log_mass / math.log(2),
            log2_at_most=None if log_at_most is None else log_at_most / math.log(2),
        )

    def _generate(self, request: CharacterRequest) -> bytes:
        state, rng = self._read(request), np.random.default_rng(request.seed)
        if request.ask is Ask.COMPLETE:
            return self._model.complete(state, rng, request.max_tokens)
        if request.ask is Ask.SAMPLE:
            return self._model.sample(state, rng, request.max_bytes)
        return self._model.choose_greedily(state, request.max_bytes)

    def _read(self, request: CharacterRequest) -> State:
        """The state after the text, advanced from the nearest cached state."""
        settings = _find_settings(request)
        origin = (hashlib.sha256(request.context).digest(), settings)  # a context may be megabytes long
        cached = self._states.find(origin, request.text)
        if cached is None:
            state = self._model.open(request.context, settings).advance(request.text)
        else:
            state = cached.state.advance(request.text[cached.num_bytes :])
        self._states.put(origin, request.text, state)
        return state

    def _describe(self, member: Member) -> CoveringMember:
        spelled = [self._model.spell(token_id) for token_id in member.token_ids]
        ahead = spelled[-1][-member.num_bytes_ahead :] if member.num_bytes_ahead else b""
        return CoveringMember(tuple(map(_show, spelled)), _show(ahead), member.probability)


def _find_settings(request: CharacterRequest) -> CoveringSettings:
    return CoveringSettings(request.covering, request.width, request.threshold)


def _show(data: bytes) -> str:
    return data.decode(errors="backslashreplace")

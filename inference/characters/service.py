"""Answers requests to the character-level model."""

import hashlib
import math
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class _Cached:
    """The state after a text, which keeps its keys and values alive."""

    digest: bytes  # of the tenant and the context, which may be megabytes long
    settings: CoveringSettings
    text: bytes
    state: State


class CharacterService:
    """Answers requests. Another may begin while one enters the model's watch; else this is not thread-safe.

    The state after the last text is kept, so a growing text is not read again.
    """

    def __init__(self, model: CharacterModel, max_bytes: int) -> None:
        """`max_bytes`: for the rows of the state that is kept; a wide beam has many."""
        self._model = model
        self._max_bytes = max_bytes
        self._last: _Cached | None = None

    def answer(self, request: CharacterRequest) -> CharacterAnswer:
        """The answer. Raises InvalidRequestError if the model or the covering does not support the text."""
        self._model.check_spelled(request.text)
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
        """The state after the text, advanced from the last one if this text goes on from there."""
        settings, owner = _find_settings(request), request.tenant.encode(errors="surrogatepass")
        digest = hashlib.sha256(owner + b"\0" + request.context).digest()
        last, self._last = self._last, None
        if last and (last.digest, last.settings) == (digest, settings) and request.text.startswith(last.text):
            state = last.state.advance(request.text[len(last.text) :])
        else:
            state = self._model.open(request.context, settings).advance(request.text)
        if state.nbytes <= self._max_bytes:
            self._last = _Cached(digest, settings, request.text, state)
        return state

    def _describe(self, member: Member) -> CoveringMember:
        spelled = [self._model.spell(token_id) for token_id in member.token_ids]
        ahead = spelled[-1][-member.num_bytes_ahead :] if member.num_bytes_ahead else b""
        return CoveringMember(tuple(map(_show, spelled)), _show(ahead), member.probability)


def _find_settings(request: CharacterRequest) -> CoveringSettings:
    return CoveringSettings(request.covering, request.width, request.threshold)


def _show(data: bytes) -> str:
    return data.decode(errors="backslashreplace")

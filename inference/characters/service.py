"""Loads the character-level model, and answers requests to it."""

import dataclasses
import hashlib
import math
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import numpy as np

from inference.characters.model import CharacterModel, CoveringSettings
from inference.characters.state import Member, State
from inference.characters.token_string import ModelReader, PassWatch
from inference.config import AUTO_DTYPE, DEFAULT_CONTEXT_TOKENS, EngineConfig
from inference.errors import ModelError
from inference.model.loader import load_model
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
from inference.protocol.completion import show_bytes


def load_character_model(config: EngineConfig, watch: PassWatch = nullcontext) -> CharacterModel:
    """The character-level model for `config.model_dir`. `watch` is entered for each forward pass, and more often.

    Raises ModelError if the model cannot be used.
    """
    # What suits completions may not be exact enough for probabilities.
    dtype = "float32" if config.dtype == AUTO_DTYPE else config.dtype
    max_tokens = config.max_context_tokens or DEFAULT_CONTEXT_TOKENS
    loaded = load_model(dataclasses.replace(config, dtype=dtype, max_context_tokens=max_tokens))
    tokenizer = loaded.tokenizer
    end_ids = sorted(tokenizer.vocabulary.end_ids)
    if not end_ids:
        raise ModelError(f"{config.model_dir} names no token for the end of a text")
    new_reader = partial(ModelReader, loaded.model, tokenizer.trie, end_ids, max_tokens, watch)
    return CharacterModel(tokenizer.encoder, tokenizer.trie, tokenizer.start_ids, new_reader, watch)


@dataclass(frozen=True, slots=True)
class _Cached:
    """The state after a text, which keeps its keys and values alive."""

    digest: bytes  # of the tenant and the context, which may be megabytes long
    settings: CoveringSettings
    text: bytes
    state: State


class CharacterService:
    """Answers requests. The state after the last text is kept, so a growing text is not read again. Not thread-safe."""

    def __init__(self, model: CharacterModel, max_bytes: int) -> None:
        """`max_bytes`: for the rows of the state that is kept; a wide beam has many."""
        self._model = model
        self._max_bytes = max_bytes
        self._last: _Cached | None = None

    def answer(self, request: CharacterRequest) -> CharacterAnswer:
        """The answer. Raises InvalidRequestError if the model or the covering does not support the text."""
        self._model.check_spelled(request.text)
        settings = CoveringSettings(request.covering, request.width, request.threshold)
        match request.ask:
            case Ask.NEXT_BYTE:
                state = self._read(request, settings)
                members = state.find_members(request.num_members) if request.num_members else []
                return NextByte(tuple(np.exp(state.next_log_probs).tolist()), tuple(map(self._describe, members)))
            case Ask.SURPRISAL:
                bits = self._model.compute_surprisals(request.text, request.context, settings)
                bits = np.where(np.isnan(bits), np.inf, bits)  # after an impossible byte, all count as impossible
                return Surprisals(tuple(bits.tolist()), float(np.mean(bits)))
            case Ask.PROBABILITY:
                state = self._model.open(request.context, settings).advance(request.text)
                return TextProbability(
                    log2_prefix=state.log_probability / math.log(2),
                    log2_whole=state.log_probability_with_end / math.log(2),
                    log2_at_least=state.log_mass / math.log(2),
                )
            case Ask.SAMPLE | Ask.GREEDY:
                rng = np.random.default_rng(request.seed) if request.ask is Ask.SAMPLE else None
                return Generated(self._model.sample(self._read(request, settings), rng, request.max_bytes))

    def _read(self, request: CharacterRequest, settings: CoveringSettings) -> State:
        """Returns the state after the text, advanced from the last one if this text goes on from there."""
        owner = request.tenant.encode(errors="surrogatepass")
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
        return CoveringMember(tuple(map(show_bytes, spelled)), show_bytes(ahead), member.probability)

"""A token-level model as a model of bytes (Vieira et al. 2025): next-byte distributions, text probabilities, samples.

Many token strings can spell a text. The probability of the text is the sum of their probabilities. The model follows
them as a *covering*: the token strings whose last token is the first to reach the end of the text. There are three
kinds:

| covering | follows | file |
|---|---|---|
| `canonical` (default) | the canonical strings of the text with any continuation | `text_covering` |
| `beam` | the K most likely bundles of all strings: the paper's algorithm | `beam_covering` |
| `enumerate` | every string: exact, and exponential | `beam_covering` |

`canonical` also follows any other string while it has a tenth of the mass (`threshold`; 1: none). All but `enumerate`
drop strings. Probabilities are still normalised: the probability of each next byte is its share of the followed mass.
So they sum to one, and the probability of a text is their product, wherever the text is divided.
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from inference.characters.beam_covering import BeamCovering, read_characters
from inference.characters.state import END, NUM_OUTCOMES, Covering, State
from inference.characters.text_covering import OpenPaths, TextCovering, find_canonical_open_paths
from inference.characters.token_string import PassWatch, TokenReader, TokenString
from inference.healing.heal_point import find_section_heal_point
from inference.healing.text_encoder import TextEncoder, cache_short
from inference.protocol.characters import CoveringKind
from trie_cache.trie import Trie

_MAX_CACHED_PATHS = 512  # texts whose open paths are remembered; some have a hundred paths


def cut_context(context: bytes, max_bytes: int) -> bytes:
    """The last `max_bytes` of the context, or a few more, from the start of a character on.

    The cut can change the first few pre-tokens after it, so request more bytes than are needed.
    """
    start = max(len(context) - max_bytes, 0)
    while start and context[start] & 0xC0 == 0x80:
        start -= 1
    return context[start:]


@dataclass(frozen=True, slots=True)
class CoveringSettings:
    """The kind of covering, and its limits."""

    kind: CoveringKind = CoveringKind.CANONICAL
    width: int = 8  # beam: how many bundles are kept
    threshold: float = 0.1  # canonical: other strings of a smaller probability are dropped


_DEFAULT = CoveringSettings()


class CharacterModel:
    """A model of bytes. Not thread-safe."""

    def __init__(
        self,
        encoder: TextEncoder,
        trie: Trie,
        start_ids: tuple[int, ...],
        new_reader: Callable[[], TokenReader],
        watch: PassWatch = nullcontext,
    ) -> None:
        """`start_ids`: the tokens that begin every text. `new_reader`: called once for each opened context.

        `watch`: entered before the paths of a text are looked for, which takes long for a long word or run of blanks.
        """
        self._encoder = encoder
        self._trie = trie
        self.spell = trie.spell
        self._start_ids = start_ids
        self._new_reader = new_reader
        self._dummy_prefix = encoder.find_dummy_prefix("").encode()
        self._find_paths = cache_short(partial(find_canonical_open_paths, encoder, trie), _MAX_CACHED_PATHS)
        self._watch = watch

    def open(self, context: bytes = b"", settings: CoveringSettings = _DEFAULT) -> State:
        """The state after `context`, whose probability does not count.

        A context that is too long for the model's window is cut first. Raises InvalidRequestError if the covering
        needs UTF-8 and the remaining context is not UTF-8, or if the vocabulary cannot spell its healed bytes.
        """
        reader = self._new_reader()
        context = cut_context(self._dummy_prefix + context, reader.max_tokens * self._trie.max_token_bytes)
        context = self._replace_unspelled(context)
        root = TokenString(self._start_ids)
        root.log_mass = 0.0
        return self._build_covering(settings).open(reader, root, context)

    def check_spelled(self, text: bytes) -> None:
        """Raises InvalidRequestError if the vocabulary cannot spell all of a text whose probability is asked for."""
        self._encoder.check_end(text.decode(errors="surrogateescape"), len(text), "text")

    def compute_surprisals(
        self, text: bytes, context: bytes = b"", settings: CoveringSettings = _DEFAULT
    ) -> npt.NDArray[np.float64]:
        """[num_bytes]: the surprisal of each byte, in bits, given those before it. Raises InvalidRequestError."""
        start = self.open(context, settings)
        sums = [start.log_probability, *(state.log_probability for state in start.walk(text))]
        bits: npt.NDArray[np.float64] = -np.diff(sums) / np.log(2)
        return bits

    def sample(self, state: State, rng: np.random.Generator | None, max_bytes: int) -> bytes:
        """Text that follows the state, sampled byte by byte until it ends; without `rng`, of the most likely bytes."""
        chosen = bytearray()
        while len(chosen) < max_bytes:
            log_probs = state.next_log_probs
            outcome = int(rng.choice(NUM_OUTCOMES, p=np.exp(log_probs)) if rng else log_probs.argmax())
            if outcome == END:
                break
            chosen.append(outcome)
            state = state.advance(bytes([outcome]))
        return bytes(chosen)

    def _replace_unspelled(self, context: bytes) -> bytes:
        """The context with U+FFFD, or a blank, for what the vocabulary cannot spell before the heal point."""
        characters = context.decode(errors="surrogateescape")
        if not self._encoder.find_unspelled(characters):
            return context
        replaced = self._encoder.replace_unspelled(characters).encode(errors="surrogateescape")
        whole = read_characters(replaced)
        num_open = len(find_section_heal_point(self._encoder, whole).healed) + len(replaced) - len(whole.encode())
        self._encoder.check_end(characters, num_open, "context")
        return replaced

    def _find_canonical(self, data: bytes) -> OpenPaths:
        with self._watch():
            return self._find_paths(data)

    def _build_covering(self, settings: CoveringSettings) -> Covering:
        if settings.kind is CoveringKind.CANONICAL:
            return TextCovering(self._trie, self._find_canonical, settings.threshold)
        return BeamCovering(
            self._encoder, self._trie, None if settings.kind is CoveringKind.ENUMERATE else settings.width
        )

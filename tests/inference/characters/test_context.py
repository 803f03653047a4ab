"""Contexts far longer than the model's window. They are cut before they are tokenized, and little of them is kept."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.characters.beam_covering import BeamCovering
from inference.characters.model import CharacterModel, CoveringSettings, cut_context
from inference.characters.open_paths import OpenPathsCache, find_canonical_open_paths, find_single_open_paths
from inference.characters.state import Covering, State
from inference.characters.text_covering import TextCovering
from inference.characters.token_string import TokenString
from inference.errors import InvalidRequestError
from inference.healing.text_encoder import PreToken, TextEncoder
from inference.protocol.characters import MAX_CONTEXT_BYTES, CoveringKind
from tests.support.character_toys import RandomModel, TokenIds, ToyReader, find_start_ids, open_toy, spell_out
from tests.support.toys import KINDS, ToyTokenizer, narrow_tokenizer, toy_tokenizer

_MAX_TOKENS = 64
_WORDS = ["as", "a1", "s", "'s", "\n", "1", "é", "as\n  ", "sas1"]

_coverings = pytest.mark.parametrize(
    "covering",
    [CoveringSettings(CoveringKind(kind), width=2) for kind in ("canonical", "single", "beam")],
    ids=lambda covering: covering.kind,
)


class _WatchedEncoder(TextEncoder):
    """An encoder that records the length of the longest text that it was given."""

    def __init__(self, encoder: TextEncoder) -> None:
        super().__init__(start_ids=encoder.start_ids)
        self.most_bytes = 0
        self._encoder = encoder

    def find_dummy_prefix(self, text: str) -> str:
        return self._encoder.find_dummy_prefix(text)

    def _split_plain(self, text: str, start: int) -> list[PreToken]:  # noqa: ARG002  # no added texts: always 0
        self.most_bytes = max(self.most_bytes, len(text.encode()))
        return self._encoder.split(text)

    def _encode_whole(self, pre_token: bytes) -> TokenIds:
        self.most_bytes = max(self.most_bytes, len(pre_token))
        return self._encoder.encode(pre_token)

    def encode_beginning(self, beginning: bytes) -> TokenIds:
        self.most_bytes = max(self.most_bytes, len(beginning))
        return self._encoder.encode_beginning(beginning)


def _open_toy(toy: ToyTokenizer, encoder: TextEncoder, max_tokens: int = _MAX_TOKENS) -> CharacterModel:
    model = RandomModel(toy.trie.num_tokens, num_tokens_seen=2)
    return CharacterModel(encoder, toy.trie, find_start_ids(toy), lambda: ToyReader(model, max_tokens))


@_coverings
@pytest.mark.parametrize("kind", ["qwen", "llama2"])
def test_the_encoder_gets_no_more_of_a_context_than_fits_the_window(kind: str, covering: CoveringSettings) -> None:
    toy = narrow_tokenizer(kind)
    encoder = _WatchedEncoder(toy.encoder)
    line = b"as a1 's sas\n"

    _open_toy(toy, encoder).open(line * (MAX_CONTEXT_BYTES // len(line)), covering)

    assert encoder.most_bytes <= 2 * _MAX_TOKENS * toy.trie.max_token_bytes


@_coverings
def test_large_contexts_are_freed_with_their_states(covering: CoveringSettings) -> None:
    toy = narrow_tokenizer("qwen")
    characters = open_toy(toy, RandomModel(toy.trie.num_tokens, num_tokens_seen=2), _MAX_TOKENS)
    characters.open(b"as", covering)
    tracemalloc.start()

    for number in range(16):
        characters.open(f"as {number} ".encode() * 100_000, covering)

    num_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert num_bytes < 1_000_000


@_coverings
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=10)
@given(words=st.lists(st.sampled_from(_WORDS), min_size=1, max_size=8), count=st.integers(1, 300))
def test_cutting_a_context_first_gives_the_same_state(
    kind: str, covering: CoveringSettings, words: list[str], count: int
) -> None:
    """Within the window nothing is cut. Beyond it, the remaining tokens are those of the whole context."""
    toy = narrow_tokenizer(kind)
    context = (
        " ".join(["as", *words, ""]) * count
    ).encode()  # with a letter, because blanks alone are one very long pre-token
    model = RandomModel(toy.trie.num_tokens)

    ours = open_toy(toy, model, _MAX_TOKENS).open(context, covering)

    other = _open_uncut(toy, model, context, covering)
    assert [spell_out(bundle.string) for bundle in ours.bundles] == [spell_out(each.string) for each in other.bundles]
    np.testing.assert_allclose(ours.next_log_probs, other.next_log_probs, rtol=0, atol=1e-9)


def _open_uncut(toy: ToyTokenizer, model: RandomModel, context: bytes, settings: CoveringSettings) -> State:
    root = TokenString(find_start_ids(toy))
    root.log_mass = 0.0
    covering: Covering = BeamCovering(toy.encoder, toy.trie, settings.width)
    if settings.kind is not CoveringKind.BEAM:
        is_canonical = settings.kind is CoveringKind.CANONICAL
        find = find_canonical_open_paths if is_canonical else find_single_open_paths
        cache = OpenPathsCache(toy.encoder, toy.trie, find)
        covering = TextCovering(toy.trie, cache, is_canonical, 0.1 if is_canonical else 1.0)
    return covering.open(ToyReader(model, _MAX_TOKENS), root, toy.encoder.find_dummy_prefix("").encode() + context)


@given(words=st.lists(st.sampled_from([*_WORDS, "中文"]), max_size=60), max_bytes=st.integers(1, 60))
def test_a_cut_keeps_at_least_the_requested_end_of_the_context(words: list[str], max_bytes: int) -> None:
    context = "".join(words).encode()

    kept = cut_context(context, max_bytes)

    assert context.endswith(kept)
    assert min(len(context), max_bytes) <= len(kept) <= max_bytes + max(max_bytes // 8, 3)
    kept.decode()


def test_a_cut_is_at_the_start_of_a_line_if_there_is_one() -> None:
    assert cut_context(b"a" * 50 + b"\n" + b"b" * 84, 80) == b"b" * 84


def test_refusing_a_long_word_takes_little_memory() -> None:
    toy = toy_tokenizer("gpt2")
    word = b"xqzj" * 2_000
    characters = _open_toy(toy, toy.encoder, max_tokens=600)
    tracemalloc.start()

    with pytest.raises(InvalidRequestError, match="longer than the model's window"):
        characters.open(word)

    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 20_000_000

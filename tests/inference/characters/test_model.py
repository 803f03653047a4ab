"""The paper's own examples, sampling, the coverings as a caller sees them, and contexts far longer than the window."""

import re
import tracemalloc
from collections import Counter
from collections.abc import Mapping
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.characters.model import CoveringSettings
from inference.characters.service import CharacterService
from inference.characters.token_string import TokenString
from inference.errors import InvalidRequestError
from inference.protocol.characters import MAX_CONTEXT_BYTES, Ask, CharacterRequest, CoveringKind
from tests.support.character_oracles import find_all_texts
from tests.support.character_toys import (
    START,
    CorpusModel,
    RandomModel,
    SmallVocabulary,
    ToyReader,
    find_start_ids,
    merge_by_hand,
    open_toy,
    spell_out,
)
from tests.support.samplers import assert_follows
from tests.support.tokenizer_folders import any_tokenizer
from tests.support.toys import ToyTokenizer, narrow_tokenizer, toy_tokenizer, train, wrap
from trie_cache.trie import Vocabulary

_CANONICAL = CoveringSettings()
_BEAM = CoveringSettings(CoveringKind.BEAM)
_ALL = CoveringSettings(CoveringKind.ENUMERATE)
_EVERY_KIND = [CoveringSettings(kind) for kind in CoveringKind]
_assert_close = partial(np.testing.assert_allclose, rtol=0, atol=1e-9)


def _train_on_pieces(toy: ToyTokenizer, weights: Mapping[tuple[str, ...], float]) -> CorpusModel:
    """Returns a model of these texts in these pieces, with these weights."""
    ids = {token: index for index, token in enumerate(toy.vocabulary.token_bytes)}
    return CorpusModel(
        toy.trie,
        find_start_ids(toy),
        {tuple(ids[piece.encode()] for piece in pieces): weight for pieces, weight in weights.items()},
    )


_KINGDOM = ("In", " the", " kingdom", " of", " the", " blind", ",", " the")
_PROVERB = (" one", "-", "eyed", " man", " is", " king", ".")
_ILLS = ("ills", " of", " the", " world", " are", " seen", ".")


def test_a_blank_can_be_on_either_side_of_the_prompts_end() -> None:
    """The prompt boundary problem.

    `In the kingdom of the blind, the` continues with ` one-eyed man is king.` But after `the` and a separate blank, the
    token model predicts `ills of the world`, because it has hardly ever seen a separate blank there.
    """
    toy = wrap("gpt2", train("gpt2", ["".join(_KINGDOM + _PROVERB), " ".join(_ILLS)] * 9, 400))
    model = _train_on_pieces(
        toy, {_KINGDOM + _PROVERB: 0.98, (*_KINGDOM, " ", *_ILLS): 5e-7, (*_KINGDOM, " man", "."): 0.02}
    )
    prompt = "".join(_KINGDOM)
    after_blank = model.find_log_probs(find_start_ids(toy) + toy.encode(prompt + " "))
    assert toy.trie.spell(int(toy.trie.order[after_blank[:-1].argmax()])) == b"ills", "so says the token model"

    characters = open_toy(toy, model)

    for covering in (_BEAM, _CANONICAL):
        blank = characters.open(prompt.encode(), covering).advance(b" ").log_probability
        for remaining_bytes in (b"one-eyed man", b"man."):
            moved = characters.open(prompt.encode() + b" ", covering).advance(remaining_bytes).log_probability
            unmoved = characters.open(prompt.encode(), covering).advance(b" " + remaining_bytes).log_probability
            assert blank + moved == pytest.approx(unmoved, abs=1e-9)
        assert characters.sample(characters.open(prompt.encode() + b" ", covering), None, 7) == b"one-eye"


_HELLO_MERGES = (
    "H e", "l l", "He ll", "Hell o", "o r", "Ġ w", "Ġw or", "l d", "Ġwor ld", "w i", "d e", "wi de", "Ġworld wide",
)  # fmt: skip


def test_hello_worl_continues_with_d() -> None:
    """Taking back one token is not enough.

    `Hello, worl` is `Hello|,| wor|l`, but `Hello, world` is `Hello|,| world`. Taking back only `l` leaves ` wor`, after
    which the model has only seen a rare misspelling: ` wor|l|wide`.
    """
    toy = merge_by_hand("gpt2", *_HELLO_MERGES)
    hello = ("Hello", ",")
    assert [toy.join([token]) for token in toy.encode("Hello, worl")] == [b"Hello", b",", b" wor", b"l"]

    characters = open_toy(
        toy,
        _train_on_pieces(
            toy, {(*hello, " world"): 0.982, (*hello, " worldwide"): 0.007, (*hello, " wor", "l", "wide"): 1e-5}
        ),
    )

    assert characters.sample(characters.open(b"Hello, worl", _CANONICAL), None, 9) == b"d"
    assert characters.sample(characters.open(b"Hello, worl", _BEAM), None, 9) == b"d"
    probabilities = np.exp(characters.open(b"Hello, worl", _BEAM).next_log_probs)
    assert probabilities[ord("w")] == pytest.approx(1e-5 / (0.982 + 0.007 + 1e-5)), "the slip is not forgotten"


_VOCABULARY = SmallVocabulary(
    b"ab",
    Vocabulary.from_tokens(
        {1: b"a", 2: b"b", 3: b"ab", 4: b"aba", 5: b"ba", 6: b"ab"}, {"<start>": START, "<end>": 7}, [7]
    ),
)
_NUM_TOKENS = 3  # the start token and two more; then the text ends
_SHORT = RandomModel(6, seed=5, sharpness=1.0, num_tokens_at_most=_NUM_TOKENS)


@pytest.mark.parametrize("prefix", [b"", b"ab"])
def test_samples_follow_the_probabilities_of_the_texts(prefix: bytes) -> None:
    """All texts are known."""
    exact = find_all_texts(_SHORT, _VOCABULARY.trie, (START,), _NUM_TOKENS)
    exact = {text: probability for text, probability in exact.items() if text.startswith(prefix)}
    characters = _VOCABULARY.open_model(_SHORT)
    state = characters.open(prefix, _ALL)
    rng, num_samples = np.random.default_rng(3), 250

    found = Counter(prefix + characters.sample(state, rng, 50) for _ in range(num_samples))

    assert set(found) <= set(exact)
    expected = num_samples * np.array(list(exact.values())) / sum(exact.values())
    assert_follows(np.array([found[text] for text in exact]), expected)


@pytest.mark.parametrize("covering", _EVERY_KIND, ids=list(CoveringKind))
def test_the_empty_prefix_has_probability_one(covering: CoveringSettings) -> None:
    toy = narrow_tokenizer("qwen")
    characters = open_toy(toy, RandomModel(toy.trie.num_tokens))

    state = characters.open(b"", covering)

    assert state.log_probability == 0
    assert state.log_probability_with_end == pytest.approx(float(state.next_log_probs[256]))
    assert characters.compute_surprisals(b"", b"as", covering).shape == (0,)
    assert state.advance(b"") is state
    assert list(state.walk(b"")) == []


_MAX_TOKENS = 64
_WORDS = ["as", "a1", "s", "'s", "\n", "1", "é", "as\n  ", "sas1"]
_window_coverings = pytest.mark.parametrize(
    "covering", [_CANONICAL, CoveringSettings(CoveringKind.BEAM, width=2)], ids=lambda covering: covering.kind
)


@_window_coverings
@pytest.mark.parametrize("kind", ["qwen", "llama2"])
def test_of_a_long_context_little_is_tokenized_and_nothing_stays_in_memory(
    kind: str, covering: CoveringSettings
) -> None:
    toy = narrow_tokenizer(kind)
    characters = open_toy(toy, RandomModel(toy.trie.num_tokens, num_tokens_seen=2), _MAX_TOKENS)
    characters.open(b"as", covering)
    line = b"as a1 's sas\n"
    context = line * (MAX_CONTEXT_BYTES // len(line))
    tracemalloc.start()

    for number in range(4):
        characters.open(context + b"%d" % number, covering)

    num_bytes, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert num_bytes < 1_000_000
    assert peak_bytes < 2 * len(context) + 200_000  # the context itself, and with a dummy prefix


@_window_coverings
@pytest.mark.parametrize("kind", ["qwen", "llama2"])
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

    characters = open_toy(toy, model, _MAX_TOKENS)
    root = TokenString(find_start_ids(toy))
    root.log_mass = 0.0
    whole = toy.encoder.find_dummy_prefix("").encode() + context

    ours = characters.open(context, covering)

    other = characters._build_covering(covering).open(ToyReader(model, _MAX_TOKENS), root, whole)
    assert [spell_out(bundle.string) for bundle in ours.bundles] == [spell_out(each.string) for each in other.bundles]
    np.testing.assert_allclose(ours.next_log_probs, other.next_log_probs, rtol=0, atol=1e-9)


def test_refusing_a_long_word_takes_little_memory() -> None:
    toy = toy_tokenizer("gpt2")
    word = b"xqzj" * 2_000
    characters = open_toy(toy, RandomModel(toy.trie.num_tokens), max_tokens=600)
    tracemalloc.start()

    with pytest.raises(InvalidRequestError, match="longer than the model's window"):
        characters.open(word)

    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 20_000_000


_FAR = "# '中' is 1\n"  # its first byte has no token


@pytest.mark.parametrize("covering", [_CANONICAL, _BEAM], ids=lambda covering: covering.kind)
def test_a_context_is_spelled_as_far_as_the_vocabulary_can(covering: CoveringSettings) -> None:
    toy = any_tokenizer("bytes without tokens")
    characters = open_toy(toy, RandomModel(toy.trie.num_tokens, seed=1, sharpness=1.0))
    states = [characters.open(text.encode(), covering) for text in (_FAR, _FAR.replace("中", "\ufffd"))]

    _assert_close(*[state.advance(b"as a").next_log_probs for state in states])


@pytest.mark.parametrize("covering", _EVERY_KIND, ids=list(CoveringKind))
@pytest.mark.parametrize(
    ("context", "text", "name"),
    [
        ("a '中".encode(), b"a", "U+4E2D, character 1 from the end of the context"),
        (b"a", "'中b".encode(), "U+4E2D, character 2 from the end of the text"),
        (b"a \xe4", b"\xb8\xad", "the byte 0xE4, character 1 from the end of the context"),
        (b"a", b" \xe4", "the byte 0xE4, character 1 from the end of the text"),
    ],
)
def test_what_the_vocabulary_cannot_spell_is_refused_by_name(
    covering: CoveringSettings, context: bytes, text: bytes, name: str
) -> None:
    toy = any_tokenizer("bytes without tokens")
    service = CharacterService(open_toy(toy, RandomModel(toy.trie.num_tokens, seed=1, sharpness=1.0)), 1 << 20)

    for ask in Ask:
        with pytest.raises(InvalidRequestError, match=re.escape(f"cannot spell {name}")):
            service.answer(CharacterRequest(text, context, ask, covering.kind, max_bytes=4))

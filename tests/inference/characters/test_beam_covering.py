"""The coverings `enumerate` and `beam`, compared with an enumeration of all token strings."""

from functools import partial

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from inference.characters.beam_covering import read_characters
from inference.characters.model import CoveringSettings
from inference.errors import InvalidRequestError
from inference.protocol.characters import CoveringKind
from tests.support.character_oracles import END, EveryString, assert_same, walk_three_ways
from tests.support.character_toys import (
    START,
    RandomModel,
    SmallVocabulary,
    ToyReader,
    random_models,
    small_vocabularies,
)
from trie_cache.trie import Vocabulary

_ALL = CoveringSettings(CoveringKind.ENUMERATE)
_WIDE = CoveringSettings(CoveringKind.BEAM, width=1024)
_assert_close = partial(np.testing.assert_allclose, rtol=0, atol=1e-9)


@st.composite
def _cases(
    draw: st.DrawFn, /, max_bytes: int = 5, max_tokens: int = 4, **changes: object
) -> tuple[SmallVocabulary, RandomModel, bytes]:
    small = draw(small_vocabularies(max_tokens))
    model = draw(random_models(small.trie, **changes))
    text = bytes(draw(st.lists(st.sampled_from(sorted(set(small.alphabet))), max_size=max_bytes)))
    return small, model, text


@given(case=_cases(), cut=st.integers(0, 5))
def test_enumerate_gives_ratios_of_prefix_probabilities_after_any_context(
    case: tuple[SmallVocabulary, RandomModel, bytes], cut: int
) -> None:
    small, model, whole = case
    every, characters = EveryString(model, small.trie, (START,)), small.open_model(model)
    context, text = whole[:cut], whole[cut:]
    sums = np.array([every.log_prefix(whole[:end]) for end in range(len(context), len(whole) + 1)])
    assume(sums[-1] > -np.inf)

    state = characters.open(context, _ALL).advance(text)
    bits = characters.compute_surprisals(text, context, _ALL)

    _assert_close(state.next_log_probs, every.find_next(whole))
    _assert_close([state.log_mass, state.log_probability], [sums[-1], sums[-1] - sums[0]])
    _assert_close(state.log_probability_with_end, every.log_whole(whole) - sums[0])
    _assert_close(bits, -np.diff(sums) / np.log(2))


@given(case=_cases())
def test_the_members_of_an_enumeration_are_the_papers_covering(
    case: tuple[SmallVocabulary, RandomModel, bytes],
) -> None:
    small, model, text = case
    covering = dict(EveryString(model, small.trie, (START,)).iter_members(text))
    total = np.logaddexp.reduce(list(covering.values()))
    assume(total > -np.inf)

    members = small.open_model(model).open(text, _ALL).find_members(10_000)

    assert len(members) == len({member.token_ids for member in members})
    assert [member.probability for member in members] == sorted(
        (member.probability for member in members), reverse=True
    )
    found = {member.token_ids: member.probability for member in members}
    for ids, log_prob in covering.items():
        assert found.pop(ids, 0.0) == pytest.approx(np.exp(log_prob - total), abs=1e-9)
    assert not found
    for member in members:
        spelled = b"".join(map(small.trie.spell, member.token_ids))
        assert spelled[: len(spelled) - member.num_bytes_ahead] == text


@given(case=_cases())
def test_a_wide_beam_equals_the_enumeration(case: tuple[SmallVocabulary, RandomModel, bytes]) -> None:
    small, model, text = case
    characters = small.open_model(model)
    wide, every = characters.open(b"", _WIDE), characters.open(b"", _ALL)
    assume(every.advance(text).log_mass > -np.inf)

    for ours, exact in zip(wide.walk(text), every.walk(text), strict=True):
        _assert_close(ours.next_log_probs, exact.next_log_probs)
        _assert_close(ours.log_mass, exact.log_mass)


def _beam(width: int) -> CoveringSettings:
    return CoveringSettings(CoveringKind.BEAM, width)


@given(case=_cases(max_bytes=8, max_tokens=3), width=st.integers(1, 4))
def test_a_beam_follows_a_part_of_the_mass_and_never_nothing_and_its_outcomes_sum_to_one(
    case: tuple[SmallVocabulary, RandomModel, bytes], width: int
) -> None:
    small, model, text = case
    narrow, exact = (small.open_model(model).open(b"", settings) for settings in (_beam(width), _ALL))

    for ours, whole in zip((narrow, *narrow.walk(text)), (exact, *exact.walk(text)), strict=True):
        assert ours.log_mass <= whole.log_mass + 1e-9
        if not model.share_impossible:
            assert np.isfinite(ours.next_log_probs[[*small.alphabet, END]]).all()
        for state in (ours, whole):
            if state.log_mass > -np.inf:
                _assert_close(np.exp(state.next_log_probs).sum(), 1)


@given(case=_cases(max_bytes=4, max_tokens=3, share_impossible=0.0), cuts=st.lists(st.integers(0, 4), max_size=3))
@pytest.mark.parametrize("settings", [_ALL, _beam(2)], ids=["all", "two"])
def test_walking_at_once_byte_by_byte_and_from_a_kept_state_agree(
    settings: CoveringSettings, case: tuple[SmallVocabulary, RandomModel, bytes], cuts: list[int]
) -> None:
    small, model, text = case
    start = small.open_model(model).open(b"", settings)
    walk_three_ways(start, text, cuts, lambda cut: text[cut:][::-1])  # `enumerate` accepts only short texts


@given(
    case=_cases(max_bytes=40, num_tokens_seen=2, share_impossible=0.0),
    width=st.integers(1, 8),
)
def test_a_beam_walks_far_beyond_a_tiny_window(case: tuple[SmallVocabulary, RandomModel, bytes], width: int) -> None:
    small, model, text = case
    start = small.open_model(model, max_tokens=12).open(b"", _beam(width))

    for state in start.walk(text * 3):
        assert np.isfinite(state.log_mass)


@given(case=_cases(max_bytes=12, num_tokens_seen=2, share_impossible=0.0))
def test_a_moving_window_does_not_change_a_model_that_looks_back_two_tokens(
    case: tuple[SmallVocabulary, RandomModel, bytes],
) -> None:
    """The width is 1, because wider beams can lose alternatives that diverged too far back."""
    small, model, text = case

    near = small.open_model(model, max_tokens=20).open(b"", _beam(1)).walk(text * 5)
    far = small.open_model(model).open(b"", _beam(1)).walk(text * 5)

    for ours, other in zip(near, far, strict=True):
        assert_same(ours, other)


_AB = SmallVocabulary(b"ab", Vocabulary.from_tokens({1: b"a", 2: b"b", 3: b"ab"}, {"<start>": START, "<end>": 4}, [4]))


def test_old_alternatives_are_kept_while_there_is_room() -> None:
    """`ab` is one token or two tokens, at the start and again after twenty letters."""
    characters = _AB.open_model(RandomModel(3, num_tokens_seen=2))
    text = b"ab" + 20 * b"b" + b"ab"

    narrow, exact = (characters.open(b"", settings).advance(text) for settings in (_beam(6), _ALL))

    _assert_close(narrow.log_mass, exact.log_mass)


def test_known_text_is_read_ahead() -> None:
    known, unknown = (_AB.open_model(RandomModel(3)).open(b"", _beam(4)) for _ in range(2))

    known.advance(20 * b"ab")
    for byte in 20 * b"ab":
        unknown = unknown.advance(bytes([byte]))

    assert isinstance(known.reader, ToyReader)
    assert isinstance(unknown.reader, ToyReader)
    assert 2 * known.reader.num_passes < unknown.reader.num_passes


def test_enumerate_refuses_a_text_that_is_too_long() -> None:
    vocabulary = Vocabulary.from_tokens({1: b"a", 2: b"aa", 3: b"aaa"}, {"<start>": 0, "<end>": 4}, [4])
    state = SmallVocabulary(b"a", vocabulary).open_model(RandomModel(3, num_tokens_seen=1)).open(b"", _ALL)

    with pytest.raises(InvalidRequestError, match="short texts"):
        state.advance(b"a" * 40)


def test_a_beam_accepts_bytes_that_are_not_utf8() -> None:
    vocabulary = Vocabulary.from_tokens({1: b"\xff", 2: b"\x80", 3: b"\xff\x80"}, {"<start>": 0, "<end>": 4}, [4])
    small = SmallVocabulary(b"\xff\x80", vocabulary)
    model = RandomModel(3)

    state = small.open_model(model).open(b"\xff\x80", _WIDE)

    _assert_close(state.next_log_probs, EveryString(model, small.trie, (START,)).find_next(b"\xff\x80"))


def test_the_characters_of_a_text_end_before_the_first_bytes_that_are_not_utf8() -> None:
    assert [read_characters(data) for data in (b"a\xffb", "aé".encode()[:-1], b"ab")] == ["a", "a", "ab"]

"""The sequences that are remembered: who gets which, and what is dropped first."""

from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from inference.engine.sequence_memory import SequenceMemory
from inference.engine.token_sequence import TokenSequence
from inference.errors import OverloadedError
from inference.healing.token_tree import TokenTree
from inference.model.language_model import Part
from tests.support.scripted_model import CountedRow, CountingCache, ScriptedModel, raise_full
from tests.support.toys import toy_tokenizer

_MAX_BYTES = 600
_NUM_SHARED = 8  # tokens that two texts must share
_ROW_BYTES = CountedRow().nbytes

_TEXTS = [tuple(range(start, start + length)) for start in (0, 100) for length in (4, 9, 14, 30)]
_TEXTS += [(*range(20), 50, 51), (*range(10), 60)]


def _read(sequence: TokenSequence, context_ids: tuple[int, ...], branch_ids: tuple[int, ...] = (7, 8)) -> None:
    """Reads a context and branches below it, as the engine does."""
    unread = sequence.begin(context_ids)
    tree = TokenTree(unread, branch_ids, (None,) * len(branch_ids))
    part = Part(sequence.cache, tree) if unread else sequence.build_part(tree, range(len(branch_ids)))
    sequence.absorb(part, [CountedRow()] * part.num_logit_rows)


def _held(sequence: TokenSequence) -> list[int]:
    assert isinstance(sequence.cache, CountingCache)
    return sequence.cache.token_ids


class SequenceMemories(RuleBasedStateMachine):
    """Requests of three tenants, which take, read, fail, and give back. Memory may be short at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.model = ScriptedModel(toy_tokenizer("qwen"))
        self.memory = SequenceMemory(self.model.new_cache, _MAX_BYTES)
        self.in_use: list[tuple[str, TokenSequence, tuple[int, ...]]] = []
        self.read_by: dict[str, set[tuple[int, ...]]] = {}
        self.was_given_back = False

    @rule(tenant=st.sampled_from("abc"), context_ids=st.sampled_from(_TEXTS), failure=st.integers(0, 5))
    def take(self, tenant: str, context_ids: tuple[int, ...], failure: int) -> None:
        self._fail_next(failure)
        try:
            sequence = self.memory.take(tenant, context_ids, len(context_ids) + 4)
        except OverloadedError:
            assert self.memory.num_idle_bytes == 0, "idle sequences are dropped before a request is refused"
            return
        finally:
            self._fail_next(0)
        self.was_given_back = False
        assert all(sequence is not other for _, other, _ in self.in_use)
        num_common = sequence.count_common(list(context_ids))
        assert any(num_common == 0 or text[:num_common] == context_ids[:num_common] for text in self._texts_of(tenant))
        self.in_use.append((tenant, sequence, tuple(sequence.token_ids)))

    @precondition(lambda self: self.in_use)
    @rule(data=st.data(), context_ids=st.sampled_from(_TEXTS), num_rows=st.integers(0, 5))
    def read(self, data: st.DataObject, context_ids: tuple[int, ...], num_rows: int) -> None:
        index = data.draw(st.integers(0, len(self.in_use) - 1))
        tenant, sequence, _ = self.in_use[index]
        _read(sequence, context_ids, tuple(range(200, 200 + num_rows + 1)))
        self.read_by.setdefault(tenant, set()).add(context_ids)
        self.in_use[index] = (tenant, sequence, tuple(sequence.token_ids))

    @precondition(lambda self: self.in_use)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        _, sequence, _ = self.in_use.pop(data.draw(st.integers(0, len(self.in_use) - 1)))
        self.memory.give_back(sequence)
        assert self.memory.num_idle_bytes <= _MAX_BYTES
        self.was_given_back = True

    @rule()
    def release(self) -> None:
        had_idle = bool(self._idle())
        assert self.memory.release() == had_idle
        assert self.memory.num_idle_bytes == 0

    @invariant()
    def nothing_in_use_is_changed_or_dropped(self) -> None:
        entries = [entry.sequence for entry in self.memory._entries if entry.is_in_use]
        assert len(entries) == len(self.in_use)
        for _, sequence, token_ids in self.in_use:
            assert any(entry is sequence for entry in entries)
            assert tuple(sequence.token_ids) == tuple(_held(sequence)) == token_ids

    @invariant()
    def idle_bytes_are_those_of_the_idle_sequences(self) -> None:
        assert self.memory.num_idle_bytes == sum(sequence.nbytes for sequence in self._idle())

    @invariant()
    def no_cache_has_two_owners(self) -> None:
        caches = [entry.sequence.cache for entry in self.memory._entries]
        assert len({id(each) for each in caches}) == len(caches)

    def _idle(self) -> list[TokenSequence]:
        return [entry.sequence for entry in self.memory._entries if not entry.is_in_use]

    def _texts_of(self, tenant: str) -> set[tuple[int, ...]]:
        return self.read_by.get(tenant, set()) | {()}

    def _fail_next(self, number: int) -> None:
        """Some numbers make the next cache or the next copy fail; 0 makes all succeed."""
        self.model.before_new_cache = raise_full if number in (1, 3) else lambda: None
        self.model.before_fork = raise_full if number in (2, 3) else lambda: None


def test_references_limits_and_owners_hold_after_any_steps() -> None:
    run_state_machine_as_test(SequenceMemories, settings=settings(stateful_step_count=40))


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel(toy_tokenizer("qwen"))


def _remember(memory: SequenceMemory, tenant: str, context_ids: tuple[int, ...]) -> TokenSequence:
    sequence = memory.take(tenant, context_ids, len(context_ids) + 4)
    _read(sequence, context_ids)
    memory.give_back(sequence)
    return sequence


def test_a_sequence_is_taken_and_not_copied_by_the_next_request_of_its_tenant(model: ScriptedModel) -> None:
    memory = SequenceMemory(model.new_cache, 10**6)
    sequence = _remember(memory, "a", tuple(range(20)))

    assert memory.take("a", (*range(15), 99), 20) is sequence
    assert model.num_caches_made == 1


def test_another_tenant_gets_an_empty_sequence(model: ScriptedModel) -> None:
    memory = SequenceMemory(model.new_cache, 10**6)
    _remember(memory, "a", tuple(range(20)))

    assert memory.take("b", tuple(range(20)), 20).num_tokens == 0


def test_a_sequence_in_use_is_copied_and_the_copy_is_independent(model: ScriptedModel) -> None:
    memory = SequenceMemory(model.new_cache, 10**6)
    first = memory.take("a", tuple(range(20)), 24)
    _read(first, tuple(range(20)))

    second = memory.take("a", (*range(12), 99), 24)
    assert second.token_ids == list(range(12))
    _read(second, (*range(12), 99))

    assert (first.token_ids, _held(first)) == (list(range(20)),) * 2
    assert (second.token_ids, _held(second)) == ([*range(12), 99],) * 2


def test_a_sequence_of_which_most_would_be_lost_is_copied(model: ScriptedModel) -> None:
    memory = SequenceMemory(model.new_cache, 10**6)
    long = _remember(memory, "a", tuple(range(40)))

    short = memory.take("a", (*range(12), 99), 24)

    assert short.token_ids == list(range(12))
    assert long.token_ids == list(range(40))


def test_a_copy_has_the_room_that_its_request_needs_and_not_that_of_its_source(model: ScriptedModel) -> None:
    memory = SequenceMemory(model.new_cache, 10**6)
    in_use = memory.take("a", tuple(range(20)), 200)
    _read(in_use, tuple(range(20)))

    copies = [memory.take("a", tuple(range(length)), length + 4) for length in (12, 20)]

    assert [copy.cache.capacity for copy in copies] == [16, 24]
    assert copies[0].fork().cache.capacity == 16  # as for another candidate of the same request


@pytest.mark.parametrize(("num_tokens", "is_same"), [(99, False), (100, True), (200, True)])
def test_a_sequence_with_more_than_twice_the_room_that_a_request_needs_is_copied(
    num_tokens: int, is_same: bool, model: ScriptedModel
) -> None:
    memory = SequenceMemory(model.new_cache, 10**6)
    large = memory.take("a", tuple(range(20)), 200)
    _read(large, tuple(range(20)))
    memory.give_back(large)

    taken = memory.take("a", tuple(range(20)), num_tokens)

    assert (taken is large) == is_same
    assert taken.cache.capacity == (200 if is_same else num_tokens)
    assert taken.fork().cache.capacity == num_tokens


def test_a_few_common_tokens_are_not_worth_a_copy(model: ScriptedModel) -> None:
    memory = SequenceMemory(model.new_cache, 10**6)
    _remember(memory, "a", tuple(range(40)))

    assert memory.take("a", (*range(_NUM_SHARED - 1), 99), 24).num_tokens == 0


def test_logits_are_dropped_before_sequences_even_of_the_only_one(model: ScriptedModel) -> None:
    """With a large vocabulary, one sequence's logits may take more memory than all keys and values."""
    memory = SequenceMemory(model.new_cache, 8 * 24 + 2 * _ROW_BYTES)
    sequence = memory.take("a", tuple(range(20)), 24)
    _read(sequence, tuple(range(20)), (7, 8))
    assert sequence.nbytes == 8 * 24 + 5 * _ROW_BYTES

    memory.give_back(sequence)

    assert memory.num_idle_bytes == 8 * 24 + 2 * _ROW_BYTES
    assert memory.take("a", tuple(range(20)), 24) is sequence
    assert sequence.recall_rows(TokenTree(())) == [None]


def test_the_sequences_that_were_used_longest_ago_are_dropped_first(model: ScriptedModel) -> None:
    texts = [tuple(range(start, start + 20)) for start in (0, 100, 200)]
    memory = SequenceMemory(model.new_cache, 2 * (8 * 24 + 5 * _ROW_BYTES))
    first, second = (_remember(memory, "a", text) for text in texts[:2])
    memory.give_back(memory.take("a", texts[0], 24))

    third = _remember(memory, "a", texts[2])

    assert [memory.take("a", text, 24) for text in (texts[0], texts[2])] == [first, third]
    assert memory.take("a", texts[1], 24) is not second


def test_a_limit_of_zero_remembers_nothing(model: ScriptedModel) -> None:
    memory = SequenceMemory(model.new_cache, 0)
    _remember(memory, "a", tuple(range(20)))

    assert memory.num_idle_bytes == 0
    assert memory.take("a", tuple(range(20)), 24).num_tokens == 0


def _fail_once(model: ScriptedModel, hook: str) -> Callable[[], None]:
    def fail() -> None:
        setattr(model, hook, lambda: None)
        raise_full()

    return fail


@pytest.mark.parametrize(("hook", "context_ids"), [("before_new_cache", (99,) * 9), ("before_fork", tuple(range(9)))])
def test_idle_sequences_make_room_for_a_request(model: ScriptedModel, hook: str, context_ids: tuple[int, ...]) -> None:
    memory = SequenceMemory(model.new_cache, 10**6)
    _remember(memory, "a", tuple(range(40)))
    setattr(model, hook, _fail_once(model, hook))

    assert memory.take("a", context_ids, 24).num_tokens == 0
    assert memory.num_idle_bytes == 0

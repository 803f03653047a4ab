"""The sequences that are remembered: who gets which, and what is dropped first."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from inference.engine.prefix_cache import PrefixCache
from inference.errors import OverloadedError
from inference.healing.token_tree import TokenTree
from inference.model.language_model import SequencePart
from inference.model.token_sequence import TokenSequence
from tests.support.scripted_model import CountedRow, CountingCache, ScriptedModel, raise_full
from tests.support.toys import toy_tokenizer

_MAX_BYTES = 600
_NUM_SHARED = 8  # tokens that two texts must share
_ROW_BYTES = CountedRow().nbytes

_TEXTS = [tuple(range(start, start + length)) for start in (0, 100) for length in (4, 9, 14, 30)]
_TEXTS += [(*range(20), 50, 51), (*range(10), 60)]


def _read(sequence: TokenSequence, context_ids: tuple[int, ...], branch_ids: tuple[int, ...] = (7, 8)) -> None:
    """Reads a context and branches below it, as the engine does."""
    unread = sequence.reuse(context_ids)
    tree = TokenTree(unread, branch_ids, (None,) * len(branch_ids))
    part = SequencePart(sequence.cache, tree) if unread else sequence.build_part(tree, range(len(branch_ids)))
    sequence.absorb(part, [CountedRow()] * part.num_logit_rows)  # type: ignore[list-item]  # it is never asked


def _count_idle_bytes(cache: PrefixCache) -> int:
    """The memory of the sequences that no request uses."""
    return sum(entry.nbytes for entry in cache._entries if not entry.is_in_use)


def _held(sequence: TokenSequence) -> list[int]:
    assert isinstance(sequence.cache, CountingCache)
    return sequence.cache.token_ids


class SequenceMemories(RuleBasedStateMachine):
    """Requests of three tenants, which take, read, fail, and give back. Memory may be short at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.model = ScriptedModel(toy_tokenizer("qwen"))
        self.memory = PrefixCache(self.model.new_cache, _MAX_BYTES)
        self.in_use: list[tuple[str, TokenSequence, tuple[int, ...]]] = []
        self.read_by: dict[str, set[tuple[int, ...]]] = {}

    @rule(tenant=st.sampled_from("abc"), context_ids=st.sampled_from(_TEXTS), failure=st.integers(0, 5))
    def take(self, tenant: str, context_ids: tuple[int, ...], failure: int) -> None:
        self._fail_next(failure)
        try:
            sequence = self.memory.acquire(tenant, context_ids, len(context_ids) + 4)
        except OverloadedError:
            assert _count_idle_bytes(self.memory) == 0, "idle sequences are dropped before a request is refused"
            return
        finally:
            self._fail_next(0)
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
    def release(self, data: st.DataObject) -> None:
        _, sequence, _ = self.in_use.pop(data.draw(st.integers(0, len(self.in_use) - 1)))
        self.memory.release(sequence)
        assert _count_idle_bytes(self.memory) <= _MAX_BYTES

    @rule()
    def clear(self) -> None:
        had_idle = bool(self._idle())
        assert self.memory.clear() == had_idle
        assert _count_idle_bytes(self.memory) == 0

    @invariant()
    def nothing_in_use_is_changed_or_dropped(self) -> None:
        entries = [entry.sequence for entry in self.memory._entries if entry.is_in_use]
        assert len(entries) == len(self.in_use)
        for _, sequence, token_ids in self.in_use:
            assert any(entry is sequence for entry in entries)
            assert tuple(sequence.token_ids) == tuple(_held(sequence)) == token_ids

    @invariant()
    def idle_bytes_are_those_of_the_idle_sequences(self) -> None:
        assert _count_idle_bytes(self.memory) == sum(sequence.nbytes for sequence in self._idle())

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


@pytest.fixture
def memory(model: ScriptedModel) -> PrefixCache:
    """A memory that forgets nothing."""
    return PrefixCache(model.new_cache, 10**6)


def _remember(memory: PrefixCache, context_ids: tuple[int, ...]) -> TokenSequence:
    sequence = memory.acquire("a", context_ids, len(context_ids) + 4)
    _read(sequence, context_ids)
    memory.release(sequence)
    return sequence


@pytest.mark.parametrize(
    ("room", "tenant", "context_ids", "num_tokens", "is_same", "num_known", "is_idle"),
    [
        pytest.param(200, "a", (*range(12), 99), 24, False, 12, False, id="copied if it is in use"),
        pytest.param(24, "a", (*range(15), 99), 20, True, 20, True, id="taken and not copied"),
        pytest.param(24, "b", tuple(range(20)), 20, False, 0, True, id="not another tenant's"),
        pytest.param(
            24, "a", (*range(_NUM_SHARED - 1), 99), 24, False, 0, True, id="a few common tokens are worth no copy"
        ),
        pytest.param(24, "a", (*range(9), 99), 24, False, 9, True, id="copied if most would be lost"),
        pytest.param(200, "a", tuple(range(20)), 99, False, 20, True, id="copied if it has more than twice the room"),
        pytest.param(200, "a", tuple(range(20)), 100, True, 20, True, id="not if it has twice the room"),
    ],
)
def test_a_sequence_is_taken_if_it_is_idle_and_the_next_request_begins_alike_and_needs_most_of_it(
    room: int,
    tenant: str,
    context_ids: tuple[int, ...],
    num_tokens: int,
    is_same: bool,
    num_known: int,
    is_idle: bool,
    memory: PrefixCache,
) -> None:
    first = memory.acquire("a", tuple(range(20)), room)
    _read(first, tuple(range(20)))
    if is_idle:
        memory.release(first)

    taken = memory.acquire(tenant, context_ids, num_tokens)

    assert (taken is first, taken.num_tokens) == (is_same, num_known)
    assert first.token_ids == list(range(20))
    assert taken.cache.capacity == (room if is_same else num_tokens)
    assert taken.fork().cache.capacity == max(num_tokens, num_known)  # for another candidate of the same request


def test_the_sequence_used_longest_ago_is_dropped_before_the_logits_of_any_other(model: ScriptedModel) -> None:
    """The first of six sequences is used once more. They are seven rows of logits too many; two have three each."""
    memory = PrefixCache(model.new_cache, 6 * 8 * 24 + (6 * 5 - 7) * _ROW_BYTES)
    texts = [tuple(range(start, start + 20)) for start in range(0, 600, 100)]
    sequences = [_remember(memory, text) for text in texts[:-1]]
    memory.release(memory.acquire("a", texts[0], 24))
    sequences.append(_remember(memory, texts[-1]))

    taken = [memory.acquire("a", text, 24) for text in texts]

    assert [own is other for own, other in zip(taken, sequences, strict=True)] == [True, False, True, True, True, True]
    has_logits = [sequence.recall_rows(TokenTree(())) != [None] for sequence in taken]
    assert has_logits == [True, False, True, True, True, True]


@pytest.mark.parametrize(("hook", "context_ids"), [("before_new_cache", (99,) * 9), ("before_fork", tuple(range(9)))])
def test_idle_sequences_make_room_for_a_request(
    model: ScriptedModel, memory: PrefixCache, hook: str, context_ids: tuple[int, ...]
) -> None:
    _remember(memory, tuple(range(40)))

    def fail_once() -> None:
        setattr(model, hook, lambda: None)
        raise_full()

    setattr(model, hook, fail_once)

    assert memory.acquire("a", context_ids, 24).num_tokens == 0
    assert _count_idle_bytes(memory) == 0

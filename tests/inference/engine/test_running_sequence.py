import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.engine import running_sequence
from inference.engine.running_sequence import MAX_DRAFT_TOKENS, propose
from inference.protocol.completion import CompletionRequest, Healing
from tests.inference.conftest import MakeModel
from tests.support.engine_bench import UNBOUNDED, open_bench
from tests.support.sinks import complete

_REPEATED = "def walk(node):\n    return node.next\n\n\n" * 4 + "def walk(node):\n    retu"


def _propose_slowly(token_ids: list[int]) -> tuple[int, ...]:
    at, most = len(token_ids), 1
    for end in range(len(token_ids) - 1, 0, -1):
        count = 0
        while count < min(16, end) and token_ids[end - count - 1] == token_ids[-count - 1]:
            count += 1
        if count > most:
            at, most = end, count
    return tuple(token_ids[at : at + min(most + 1, MAX_DRAFT_TOKENS)])


@settings(max_examples=10 * settings().max_examples)
@given(token_ids=st.lists(st.sampled_from([0, 1, 256, 65_536, 0xD800, 0xDC00, 0xFEFF]), max_size=40))
def test_a_draft_follows_the_latest_of_the_longest_matches(token_ids: list[int]) -> None:
    """The ids have common bytes, which must not be found across the borders of numbers, and may be surrogates."""
    assert propose(token_ids, 0.0) == _propose_slowly(token_ids)


@pytest.mark.parametrize(("token_cost", "expected"), [(0.1, (4, 5, 6, 7)), (0.7, ())])
def test_a_draft_is_what_followed_earlier_unless_rows_are_dear(token_cost: float, expected: tuple[int, ...]) -> None:
    assert propose([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1, 2, 3], token_cost) == expected


@pytest.mark.parametrize("kind", ["qwen", "llama2"])
@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.8, "seed": 3}, {"num_candidates": 2}])
@pytest.mark.parametrize("healing", [Healing.EXACT, Healing.GREEDY])
def test_drafts_save_passes_and_change_no_completion(
    kind: str, sampling: dict[str, float], healing: Healing, make_model: MakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sampled ones too: the draws are the same. Of the guesses some are right for a while, some never."""
    folder = make_model(kind)
    request = CompletionRequest(_REPEATED, max_tokens=20, healing=healing, extent=UNBOUNDED, **sampling)  # type: ignore[arg-type]
    monkeypatch.setattr(running_sequence, "propose", lambda *_: ())
    with open_bench(folder, kind) as plain:
        expected = complete(plain.engine, request)
    said = [list(cache.token_ids) for cache in plain.model.caches]

    def guess(token_ids: list[int], token_cost: float) -> tuple[int, ...]:  # noqa: ARG001
        num_read = len(token_ids)
        right = next((ids[num_read : num_read + 5] for ids in said if ids[:num_read] == token_ids), [])
        if num_read % 3 == 0:
            right = right[:2]
        return (*right, 7, 8)[:MAX_DRAFT_TOKENS]

    monkeypatch.setattr(running_sequence, "propose", guess)
    with open_bench(folder, kind) as drafting:
        ours = complete(drafting.engine, request)

    assert ours.texts == expected.texts
    assert 0 < ours.stats.num_accepted < ours.stats.num_drafted
    num_saved = expected.stats.num_forwards - ours.stats.num_forwards
    assert num_saved == ours.stats.num_accepted or request.num_candidates > 1  # the other one may need the pass

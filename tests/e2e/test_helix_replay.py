"""Random editing in a real Helix: the buffer is the language server's text, and the menu is its answer for it."""

from pathlib import Path

import pytest

from tests.support.replay.helix import STEPS_EACH, play
from tests.support.replay.steps import run_replays

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(0)]


@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_random_editing_keeps_all_in_step(tmp_path: Path, request: pytest.FixtureRequest, end: str) -> None:
    seed = request.config.getoption("replay_seed")
    num_steps = request.config.getoption("replay_steps") or 80
    outcome = run_replays(lambda seed, steps: play(tmp_path / str(seed), seed, steps, end), num_steps, seed, STEPS_EACH)
    print(f"from seed {seed}: {outcome.counts}")
    assert not outcome.mismatches, "\n\n".join(outcome.mismatches)
    assert min(vars(outcome.counts).values()) > 0, outcome.counts

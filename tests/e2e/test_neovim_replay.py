"""Random editing in a real Neovim: the buffer is what a simple model says, and so are the ghost text and the mirror."""

from pathlib import Path

import pytest

from tests.support.replay.neovim import play
from tests.support.replay.steps import run_replays

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(0)]


@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_random_editing_follows_the_model(tmp_path: Path, request: pytest.FixtureRequest, end: str) -> None:
    seed = request.config.getoption("replay_seed")
    num_steps = request.config.getoption("replay_steps") or 150
    outcome = run_replays(lambda seed, steps: play(tmp_path / str(seed), seed, steps, end), num_steps, seed)
    print(f"from seed {seed}: {outcome.counts}")
    assert not outcome.mismatches, "\n\n".join(outcome.mismatches)
    assert min(vars(outcome.counts).values()) > 0, outcome.counts

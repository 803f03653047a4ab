"""Random editing in Neovim: its buffer is the language server's text, and what a simple model of the editor says."""

from pathlib import Path

import pytest

from tests.support.replay.neovim import play
from tests.support.replay.steps import draw_seed, run_replays

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(0)]


def test_random_editing_keeps_all_in_step(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    long_steps, seed = request.config.getoption("replay_steps"), request.config.getoption("replay_seed")
    if seed is None:
        seed = draw_seed() if long_steps else 1
    outcome = run_replays(lambda seed, steps: play(tmp_path / str(seed), seed, steps), long_steps or 300, seed)
    with capsys.disabled():
        print(f"from seed {seed}: {outcome.counts}")
    assert not outcome.mismatches, "\n\n".join(outcome.mismatches)
    assert min(vars(outcome.counts).values()) > 0, outcome.counts

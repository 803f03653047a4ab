"""Random editing in Neovim and VS Code: the buffer is the language server's text, and the screen is its answer for it.

In Neovim, the buffer and the ghost text are also what a simple model of the editor says.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.replay import neovim, vscode
from tests.support.replay.steps import Outcome, draw_seed, run_replays
from tests.support.vscode import MISSING

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(0)]


def _play_vscode(folder: Path, seed: int, steps: int) -> Outcome:
    return vscode.play(folder.parent / "extensions", folder, seed, steps)


@pytest.mark.parametrize(
    ("play", "num_steps", "steps_each"),
    [
        pytest.param(neovim.play, 300, 150, id="neovim"),
        pytest.param(
            _play_vscode,
            180,
            vscode.STEPS_EACH,
            id="vscode",
            marks=pytest.mark.skipif(MISSING is not None, reason=str(MISSING)),
        ),
    ],
)
def test_random_editing_keeps_all_in_step(
    play: Callable[[Path, int, int], Outcome],
    num_steps: int,
    steps_each: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    long_steps, seed = request.config.getoption("replay_steps"), request.config.getoption("replay_seed")
    if seed is None:
        seed = draw_seed() if long_steps else 1
    outcome = run_replays(
        lambda seed, steps: play(tmp_path / str(seed), seed, steps), long_steps or num_steps, seed, steps_each
    )
    with capsys.disabled():
        print(f"from seed {seed}: {outcome.counts}")
    assert not outcome.mismatches, "\n\n".join(outcome.mismatches)
    assert min(vars(outcome.counts).values()) > 0, outcome.counts

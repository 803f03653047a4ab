"""Random editing in real editors: the buffer is the language server's text, and the screen is its answer for it.

In Neovim, the buffer and the ghost text are also what a simple model of the editor says.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.replay import helix, neovim, vscode
from tests.support.replay.steps import draw_seed, run_replays
from tests.support.vscode import find_missing

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(0)]


def _play_vscode(folder: Path, seed: int, steps: int, end: str) -> Any:
    return vscode.play(folder.parent / "extensions", folder, seed, steps, end)


@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize(
    ("play", "num_steps", "limits"),
    [
        pytest.param(neovim.play, 150, (), id="neovim"),
        pytest.param(helix.play, 80, (helix.STEPS_EACH,), id="helix"),
        pytest.param(
            _play_vscode,
            80,
            (vscode.STEPS_EACH,),
            id="vscode",
            marks=pytest.mark.skipif(find_missing() is not None, reason=str(find_missing())),
        ),
    ],
)
def test_random_editing_keeps_all_in_step(
    play: Callable[..., Any],
    num_steps: int,
    limits: tuple[int, ...],
    end: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    long_steps, seed = request.config.getoption("replay_steps"), request.config.getoption("replay_seed")
    if seed is None:
        seed = draw_seed() if long_steps else 1
    outcome = run_replays(
        lambda seed, steps: play(tmp_path / str(seed), seed, steps, end), long_steps or num_steps, seed, *limits
    )
    with capsys.disabled():
        print(f"from seed {seed}: {outcome.counts}")
    assert not outcome.mismatches, "\n\n".join(outcome.mismatches)
    assert min(vars(outcome.counts).values()) > 0, outcome.counts

"""Random editing in real editors, with the steps and mismatches of each."""

import tempfile
from pathlib import Path

from tests.support.replay import helix, neovim, vscode
from tests.support.replay.steps import Outcome, run_replays

_ENDS = ("\n", "\r\n")  # in turn


def replay_neovim(num_steps: int, seed: int) -> Outcome:
    """Needs `make build/editors/nvim`."""
    with tempfile.TemporaryDirectory(prefix="midtoken-") as name:
        folder = Path(name)
        return run_replays(
            lambda seed, steps: neovim.play(folder / str(seed), seed, steps, _ENDS[seed % 2]), num_steps, seed
        )


def replay_helix(num_steps: int, seed: int) -> Outcome:
    """Needs `make build/editors/hx`."""
    with tempfile.TemporaryDirectory(prefix="midtoken-") as name:
        folder = Path(name)
        return run_replays(
            lambda seed, steps: helix.play(folder / str(seed), seed, steps, _ENDS[seed % 2]),
            num_steps,
            seed,
            helix.STEPS_EACH,
        )


def replay_vscode(num_steps: int, seed: int) -> Outcome:
    """Needs what `make test-vscode` builds."""
    with tempfile.TemporaryDirectory(prefix="midtoken-") as name:
        folder = Path(name)
        return run_replays(
            lambda seed, steps: vscode.play(folder / "extensions", folder / str(seed), seed, steps, _ENDS[seed % 2]),
            num_steps,
            seed,
            vscode.STEPS_EACH,
        )

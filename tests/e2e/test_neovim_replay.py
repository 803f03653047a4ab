"""Random editing in a real Neovim: the buffer is what a simple model says, and so is the ghost text."""

from pathlib import Path

import pytest

from tests.support.lsp_editor import WriteScript
from tests.support.neovim_editor import open_file, run_neovim
from tests.support.neovim_replay import COMPLETIONS, LINES, Replay, prepare

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(0)]


@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_random_editing_follows_the_model(
    tmp_path: Path, write_script: WriteScript, request: pytest.FixtureRequest, end: str
) -> None:
    seed = request.config.getoption("replay_seed")
    num_steps = request.config.getoption("replay_steps")
    script = write_script(*({"ends_with": ending, "texts": texts} for ending, texts in COMPLETIONS))
    with run_neovim(tmp_path) as editor:
        editor.lua("require('midtoken').setup(...)", {"cmd": script.command})
        prepare(editor)
        open_file(editor, tmp_path / "file.py", LINES, end)
        replay = Replay(editor, LINES, seed)
        replay.run(num_steps)
    print(f"seed {seed}: {replay.counts}")
    assert min(vars(replay.counts).values()) > 0, replay.counts

"""The editors on the path, and whether midtoken is set up in them, as they say themselves."""

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from midtoken.checks import Check, good, note

_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class _Editor:
    """How an editor is asked whether midtoken is set up in it."""

    name: str
    question: tuple[str, ...]  # arguments
    sign: str  # a pattern of a line in its answer if it is; the first group is shown
    advice: str  # if it is not


_FIND_PLUGIN = (
    "lua io.stdout:write(vim.fn.has('nvim-0.12') == 1 and pcall(require, 'midtoken') and 'the plug-in' or '')"
)
_NEOVIM = _Editor(
    "Neovim",
    ("--headless", "-c", _FIND_PLUGIN, "-c", "qa!"),
    r"(the plug-in)$",
    "Neovim 0.12 or newer needs the plug-in, unless it is loaded later: editors/neovim/README.md says how; "
    ":checkhealth midtoken says more.",
)
_VSCODE = _Editor(
    "VS Code",
    ("--list-extensions", "--show-versions"),
    r"^(midtoken\.midtoken\S*)$",
    "Run make vscode, then `{0} --install-extension build/editors/midtoken.vsix`.",
)
_HELIX = _Editor(
    "Helix",
    ("--health", "python"),
    r"✓.*?(/\S*/midtoken)\b",
    "Its languages.toml must name a midtoken that is there: editors/helix/README.md says how, `{0} --health python` "
    "what is wrong.",
)
_EDITORS = {"nvim": _NEOVIM, "code": _VSCODE, "code-server": _VSCODE, "hx": _HELIX, "helix": _HELIX}


def check_editors(environment: Mapping[str, str]) -> Iterator[Check]:
    """Checks each editor that is found. They are run in the current folder, whose settings count."""
    paths = {program: shutil.which(program, path=environment.get("PATH", "")) for program in _EDITORS}
    for program, path in paths.items():
        if path is not None:
            yield _check(_EDITORS[program], program, path, environment)
    if not any(paths.values()):
        advice = "Put nvim, hx, code or code-server on the path if you use one of them."
        yield note("no editor that is known here is on the path", advice)


def _check(editor: _Editor, program: str, path: str, environment: Mapping[str, str]) -> Check:
    version = re.search(r"\d+\.\d\S*", _read_output([path, "--version"], environment))
    found = re.search(editor.sign, _read_output([path, *editor.question], environment), re.MULTILINE)
    shown = f"{editor.name} {version[0] if version else 'of an unknown version'} ({program})"
    if found is None:
        return note(f"{shown} without midtoken", editor.advice.format(program))
    return good(f"{shown} with {found[1]}")


def _read_output(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Returns what a program says; nothing if it fails."""
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode(errors="replace")

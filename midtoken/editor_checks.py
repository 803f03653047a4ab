"""The editors on the path, and whether midtoken is set up in them, as far as that can be seen."""

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any  # what is in a TOML file

from inference.platforms import tomllib
from midtoken.checks import Check, good, note

_TIMEOUT_S = 20.0
_GUIDE = "editors/{}/README.md says how"
_OLDEST_NEOVIM = (0, 12)
_FIND_PLUGIN = "lua io.stdout:write(pcall(require, 'midtoken') and 'found' or 'missing')"
_NOT_AS_EXPECTED = (AttributeError, KeyError, TypeError)  # for TOML with other things in it than Helix has


_EXTENSION = re.compile(r"(?m)^midtoken\.midtoken(?:@(\S+))?$")


def check_editors(environment: Mapping[str, str], folder: Path) -> Iterator[Check]:
    """Checks each editor that is found. `folder`: the current one, where Helix may have settings of a project."""
    find = partial(shutil.which, path=environment.get("PATH", ""))
    helix = partial(_check_helix, folders=[_find_helix_folder(environment), folder / ".helix"])
    editors: dict[str, Callable[[Mapping[str, str], str], Check]] = {
        "nvim": _check_neovim,
        "code": _check_vscode,
        "code-server": _check_vscode,
        "hx" if find("hx") else "helix": helix,
        "emacs": _check_emacs,
    }
    found = {path: check for name, check in editors.items() if (path := find(name)) is not None}
    for path, check in found.items():
        yield check(environment, path)
    if not found:
        advice = "Put nvim, hx, code or code-server on the path if you use one of them."
        yield note("no editor that is known here is on the path", advice)


def _check_emacs(environment: Mapping[str, str], path: str) -> Check:
    shown = _read_version(environment, path, r"GNU Emacs (\S+)")
    return good(f"Emacs {shown}: any LSP client can start `midtoken lsp`; its set-up is not checked")


def _check_neovim(environment: Mapping[str, str], path: str) -> Check:
    shown = _read_version(environment, path, r"NVIM v(\S+)")
    numbers = tuple(int(number) for number in re.findall(r"\d+", shown)[:2])
    if numbers < _OLDEST_NEOVIM:
        return note(f"Neovim {shown}", "Ghost text needs Neovim 0.12 or newer, so please update it.")
    answer = _read_output(environment, [path, "--headless", "-c", _FIND_PLUGIN, "-c", "qa!"])
    if answer is not None and answer.strip().endswith("found"):
        return good(f"Neovim {shown} with the plug-in; :checkhealth midtoken says more")
    missing = f"Add the plug-in to its configuration: {_GUIDE.format('neovim')}."
    return note(f"Neovim {shown} without the plug-in, or it is loaded later", missing)


def _check_vscode(environment: Mapping[str, str], path: str) -> Check:
    shown = _read_version(environment, path, r"^(\d\S*)")
    listed = _read_output(environment, [path, "--list-extensions", "--show-versions"])
    name = f"VS Code {shown} ({Path(path).name})"
    if listed is None:
        return note(f"{name}: it does not list its extensions", f"Try `{Path(path).name} --list-extensions` yourself.")
    extension = _EXTENSION.search(listed)
    if extension is None:
        advice = f"Run make vscode, then `{Path(path).name} --install-extension build/editors/midtoken.vsix`."
        return note(f"{name} without the extension", advice)
    return good(f"{name} with the extension {extension[1] or ''}".rstrip())


def _check_helix(environment: Mapping[str, str], path: str, folders: list[Path]) -> Check:
    shown = _read_version(environment, path, r"helix (\S+)")
    for file in (folder / "languages.toml" for folder in folders):
        try:
            languages = _find_languages(tomllib.loads(file.read_text(encoding="utf-8")))
        except FileNotFoundError:
            continue
        except (OSError, ValueError, *_NOT_AS_EXPECTED) as error:
            advice = f"Correct {file}; `hx --health` says more."
            return note(f"Helix {shown}: {file} cannot be read ({type(error).__name__})", advice)
        if languages:
            return good(f"Helix {shown} with midtoken for {', '.join(languages)}, in {file}")
    return note(f"Helix {shown} without midtoken", f"Add it to {folders[0]}/languages.toml: {_GUIDE.format('helix')}.")


def _find_languages(settings: dict[str, Any]) -> list[str]:
    """Returns the languages for which Helix starts a language server whose command is midtoken."""
    servers = settings.get("language-server", {})
    ours = {name for name, server in servers.items() if Path(str(server.get("command", ""))).name == "midtoken"}
    languages = []
    for language in settings.get("language", []):
        used = {each["name"] if isinstance(each, dict) else each for each in language.get("language-servers", [])}
        if ours & used:
            languages.append(str(language.get("name")))
    return languages


def _find_helix_folder(environment: Mapping[str, str]) -> Path:
    home = environment.get("XDG_CONFIG_HOME") or Path(environment.get("HOME", ""), ".config")
    return Path(home, "helix")


def _read_version(environment: Mapping[str, str], path: str, pattern: str) -> str:
    found = re.search(pattern, _read_output(environment, [path, "--version"]) or "", re.MULTILINE)
    return found[1] if found else "of an unknown version"


def _read_output(environment: Mapping[str, str], command: Sequence[str]) -> str | None:
    """Returns what a command prints; None if it fails or takes too long."""
    try:
        done = subprocess.run(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout

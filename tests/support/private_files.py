"""Files that may not leave the machine."""

import hashlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

# That of a person without settings of their own.
GIT_ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": "/nowhere", "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}


def run_git(folder: Path, *arguments: str, data: bytes | None = None) -> bytes:
    """Runs Git in a folder. Returns what it writes. With `data`, any exit status is right: it may be an answer."""
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env=GIT_ENVIRONMENT, input=data, stdout=subprocess.PIPE, check=data is None
    )
    return done.stdout


@dataclass(frozen=True, slots=True)
class ExcludedFile:
    """A file that one pattern excludes, in a folder of its own. Its text contains its marker."""

    name: str
    path: str  # of the document, relative to the folder
    files: Mapping[str, str] = field(default_factory=dict)  # ignore files: path -> text
    links: Mapping[str, str] = field(default_factory=dict)  # symbolic links: path -> target
    setting: Sequence[str] = ()  # `exclude`
    is_repository: bool = True
    harmless: str = "open.py"  # a document beside it that is not excluded

    @property
    def marker(self) -> str:
        """What must not be sent. No piece of it stands in a message for another reason."""
        return "m" + hashlib.sha256(self.name.encode()).hexdigest()[:24]

    def build(self, folder: Path) -> Path:
        """Makes the folder. Returns the path of the document."""
        folder.mkdir(parents=True)
        if self.is_repository:
            run_git(folder, "init", "--quiet")
        for path, text in self.files.items():
            _write(folder / path, text)
        for path, target in self.links.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).symlink_to(target)
        _write(folder / self.path, f"{self.marker} = 1\n")
        _write(folder / self.harmless, "harmless = 1\n")
        return folder / self.path


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


_CREDENTIAL_NAMES = (
    ".env", ".env.local", "server.pem", "id_rsa", "tls.key", ".netrc", ".npmrc", ".pypirc", "credentials.json",
)  # fmt: skip
_HIDDEN = {".gitignore": "hidden/\n", "hidden/x.py": "", "hidden/y.py": ""}


def _without_git(name: str, path: str, files: Mapping[str, str], harmless: str = "open.py") -> ExcludedFile:
    return ExcludedFile(name, path, files, is_repository=False, harmless=harmless)


def _by_setting(name: str, path: str, *patterns: str, harmless: str = "open.py") -> ExcludedFile:
    return ExcludedFile(name, path, setting=patterns, is_repository=False, harmless=harmless)


# Each is excluded by a pattern of another kind.
EXCLUDED_FILES: tuple[ExcludedFile, ...] = (
    # by Git
    ExcludedFile("git_name", "local.py", {".gitignore": "local.py\n"}),
    ExcludedFile("git_star", "a/b/x.local.py", {".gitignore": "*.local.py\n"}),
    ExcludedFile("git_folder", "build/deep/x.py", {".gitignore": "build/\n"}),
    ExcludedFile("git_anchored", "out/x.py", {".gitignore": "/out\n"}, harmless="src/out.py"),
    ExcludedFile("git_two_stars", "a/b/c/private/x.py", {".gitignore": "a/**/private\n"}),
    ExcludedFile("git_everything_in", "logs/x.py", {".gitignore": "logs/**\n"}),
    ExcludedFile("git_set", "x3.py", {".gitignore": "x[0-9].py\n"}, harmless="xa.py"),
    ExcludedFile("git_negated_set", "xa.py", {".gitignore": "x[!0-9].py\n"}, harmless="x3.py"),
    ExcludedFile("git_question", "v1.py", {".gitignore": "v?.py\n"}, harmless="v10.py"),
    ExcludedFile("git_escaped", "!x.py", {".gitignore": "\\!x.py\n"}),
    ExcludedFile("git_blank", "a b.py", {".gitignore": "a\\ b.py  \n"}),
    ExcludedFile("git_windows_ends", "local.py", {".gitignore": "# mine\r\nlocal.py\r\n"}),
    ExcludedFile("git_nested", "pkg/local.py", {".gitignore": "", "pkg/.gitignore": "local.py\n"}),
    ExcludedFile("git_nested_last", "pkg/a.py", {".gitignore": "!a.py\n", "pkg/.gitignore": "a.py\n"}),
    ExcludedFile("git_all_but", "x.py", {".gitignore": "*\n!open.py\n"}),
    ExcludedFile("git_lost_negation", "secret/x.py", {".gitignore": "secret/\n!secret/x.py\n"}),
    ExcludedFile("git_nested_lost", "secret/x.py", {".gitignore": "secret\n", "secret/.gitignore": "!x.py\n"}),
    ExcludedFile("git_negated_twice", "a.py", {".gitignore": "a.py\n!a.py\na.py\n"}),
    ExcludedFile("git_info", "mine.py", {".git/info/exclude": "mine.py\n"}),
    # by ignore files of our own
    _without_git("own_name", "x.py", {".midtokenignore": "x.py\n"}),
    _without_git("own_folder", "secrets/x.py", {".midtokenignore": "# ours\n\nsecrets/\n"}),
    _without_git("own_parent", "a/b/c/x.py", {"a/.midtokenignore": "c\n"}),
    _without_git("own_negation", "a/x.py", {".midtokenignore": "a/*\n!a/open.py\n"}, "a/open.py"),
    _without_git("own_nested", "a/x.py", {".midtokenignore": "!x.py\n", "a/.midtokenignore": "x.py\n"}),
    ExcludedFile("own_beside_git", "x.py", {".midtokenignore": "x.py\n", ".gitignore": "!x.py\n"}),
    # by name
    *(ExcludedFile(f"name_{number}", name, is_repository=False) for number, name in enumerate(_CREDENTIAL_NAMES)),
    ExcludedFile("name_upper", "PROD.PEM", is_repository=False),
    ExcludedFile("name_folder", ".ssh/config", is_repository=False),
    ExcludedFile("name_in_folder", "home/.aws/credentials", is_repository=False),
    # by the setting
    _by_setting("setting_anywhere", "a/private/x.py", "**/private/**"),
    _by_setting("setting_workspace", "src/x.py", "src/*.py", harmless="src/deep/x.py"),
    _by_setting("setting_negated", "gen/x.py", "gen/*", "!gen/open.py", harmless="gen/open.py"),
    # behind links
    ExcludedFile("link_to_file", "link.py", _HIDDEN, {"link.py": "hidden/x.py"}),
    ExcludedFile("link_to_folder", "open/x.py", _HIDDEN, {"open": "hidden"}),
    ExcludedFile("link_itself", "hidden.py", {".gitignore": "hidden.py\n", "y.py": ""}, {"hidden.py": "y.py"}),
    ExcludedFile(
        "link_through",
        "link.py",
        {".gitignore": "hidden/\n", "y.py": ""},
        {"link.py": "hidden/through.py", "hidden/through.py": "../y.py"},
    ),
)

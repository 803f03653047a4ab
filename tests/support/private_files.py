"""Files that may not leave the machine, and secrets in files that may. No secret here was ever valid.

Secrets are built from parts, so that no scanner of this repository finds them.
"""

import base64
import hashlib
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

_LETTERS = "q7Rk2mZx9Lw4Tn8Vb3Yc6Hd1Jf5Gs0PaEuQi"
_LOWER = "q7rk2mzx9lw4tn8vb3yc6hd1jf5gs0pa"
_BASE64_LINE = "MIIEowIBAAKCAQEAx7Rk2mZx9Lw4Tn8Vb3Yc6Hd1Jf5Gs0PaEuQiTn8Vb3Yc6Hd1"


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
            subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True, env={"PATH": os.environ["PATH"]})
        for path, text in self.files.items():
            _write(folder / path, text)
        for path, target in self.links.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).symlink_to(target)
        _write(folder / self.path, f"{self.marker} = 1\n")
        _write(folder / self.harmless, "harmless = 1\n")
        return folder / self.path


class Secret(NamedTuple):
    """A form of secret, and a line or block of Python that contains it."""

    form: str
    secret: str
    template: str = 'token = "{}"\n'

    @property
    def text(self) -> str:
        """The source text."""
        return self.template.format(self.secret)


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


def _build_web_token() -> str:
    parts = ({"alg": "HS256", "typ": "JWT"}, {"sub": "1234567890", "name": _LETTERS})
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join([*encoded, (_LETTERS * 2)[:43]])


_KEY_BODY = "\n".join([_BASE64_LINE] * 6 + ["Tn8Vb3Yc6Hd1Jf5Gs0Pa=="])
_KEY_BEGIN, _KEY_END = (f"-----{word} ENCRYPTED " + "PRIVATE " + "KEY-----" for word in ("BEGIN", "END"))
_KEY_STRINGS = "".join(f'    "{line}\\n"\n' for line in [_KEY_BEGIN, *_KEY_BODY.splitlines(), _KEY_END])


def _build_key_block(kind: str) -> Secret:
    begin, end = (f"-----{word} {kind}" + "PRIVATE " + "KEY-----" for word in ("BEGIN", "END"))
    return Secret(f"{kind}key block", _KEY_BODY, f'key = """{begin}\n{{}}\n{end}\n"""\n')


SECRETS: tuple[Secret, ...] = (
    Secret("AWS key", "AKIA" + _LETTERS[:16].upper()),
    Secret("AWS secret", _LETTERS + "x/+9", 'aws_secret_key = "{}"\n'),
    Secret("GitHub", "ghp" + "_" + _LETTERS),
    Secret("GitHub, longer", "gho" + "_" + _LETTERS + "abcd"),
    Secret("GitLab", "glpat" + "-" + _LETTERS[:20]),
    Secret("Slack", "-".join(["xoxb", "123456789012", "123456789012", _LOWER[:24]])),
    Secret("Slack webhook", "https://hooks." + f"slack.com/services/T{_LETTERS[:8]}/B{_LETTERS[8:16]}/{_LETTERS[:24]}"),
    Secret("Stripe", "sk_live" + "_" + _LETTERS[:24]),
    Secret("OpenAI", "sk-" + _LETTERS[:20] + "T3Blbk" + "FJ" + _LETTERS[:20]),
    Secret("SendGrid", "SG" + "." + _LETTERS[:22] + "." + (_LETTERS * 2)[:43]),
    Secret("Twilio", "SK" + _LOWER),
    Secret("Telegram", "123456789" + ":" + _LETTERS[:35]),
    Secret("Discord", "M" + _LETTERS[:23] + "." + _LETTERS[:6] + "." + _LETTERS[:27]),
    Secret("Mailchimp", _LOWER + "-us12"),
    Secret("PyPI", "pypi-" + "AgEIcHlwaS5vcmc" + (_LETTERS * 3)[:80]),
    Secret("npm", "npm_" + _LETTERS, "# //registry.example.com/:_authToken={}\n"),
    Secret("Azure", "AccountKey" + "=" + (_LETTERS * 3)[:86] + "=="),
    Secret("Square", "sq0csp" + "-" + (_LETTERS * 2)[:43]),
    Secret("Artifactory", "AKC" + _LETTERS[:20]),
    Secret("web token", _build_web_token()),
    Secret("address with password", _LETTERS[:12], 'url = "postgres://me:{}@db.example.com/x"\n'),
    Secret("password", "Tr0ub4dor-" + _LETTERS[:6], 'password = "{}"\n'),
    Secret("password in a dictionary", _LETTERS[:14], 'options = {{"password": "{}"}}\n'),
    *map(_build_key_block, ("RSA ", "EC ", "OPENSSH ", "", "ENCRYPTED ")),
    Secret("key in strings", _BASE64_LINE, "key = (\n" + _KEY_STRINGS + ")\n"),
    Secret("key in one line", _BASE64_LINE, f'key = "{_KEY_BEGIN}\\n{{}}\\n{_KEY_END}"\n'),
)


def count_secret_bytes(sent: Sequence[str], secrets: Sequence[str], min_chars: int = 8) -> int:
    """Returns how many bytes of secrets are in the texts: all that `min_chars` of a secret in a row show."""
    num_bytes = 0
    for secret in secrets:
        pieces = {secret[at : at + min_chars] for at in range(max(1, len(secret) - min_chars + 1))}
        pieces = {piece for piece in pieces if "\n" not in piece}
        num_bytes += sum(len(piece.encode()) for piece in pieces for text in sent if piece in text)
    return num_bytes

"""The keys with which users of other machines are admitted, in a file that is read again when it changes.

A line has the name of a user and the user's key, or `sha256:` and the key's SHA-256 digest in hexadecimal. Empty lines
and those that begin with `#` are ignored.
"""

import re
from collections.abc import Callable
from hashlib import blake2b, sha256
from pathlib import Path
from secrets import token_bytes

from inference.errors import LaunchError
from inference.serving.private_files import read_private

_MIN_KEY_CHARS = 16
_KEY = re.compile(r"[!-~]+")  # what a header can have, without blanks
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_Digest = bytes
_Version = tuple[int, int, int] | None


class KeyFile:
    """Finds the user of a key."""

    def __init__(self, path: Path, option: str, say: Callable[[str], object]) -> None:
        """`option`: which names the file, for messages. Raises LaunchError if the file cannot be used.

        `say` gets a line when the file has changed. If it cannot be used then, those who had a key keep it.
        """
        self._path, self._option, self._say = path, option, say
        self._salt = token_bytes(16)
        self._version = self._find_version()
        self._users = self._read()

    def find_tenant(self, authorization: str) -> str | None:
        """Returns a name for the user whose key is in the value of the header `Authorization`; None if there is none.

        The name is a digest that tells nothing, and another one after a restart. How long this takes says nothing of
        the keys, because only digests of them are compared.
        """
        self._refresh()
        scheme, _, key = authorization.partition(" ")
        user = self._users.get(sha256(key.encode(errors="replace")).digest()) if scheme.lower() == "bearer" else None
        return None if user is None else blake2b(user.encode(), key=self._salt, digest_size=16).hexdigest()

    def _refresh(self) -> None:
        version = self._find_version()
        if version == self._version:
            return
        self._version = version
        try:
            self._users = self._read()
        except LaunchError as error:
            self._say(f"{error}. The keys that were read before remain valid")
        else:
            self._say(f"{self._path} has changed; users that have a key: {len(self._users)}")

    def _find_version(self) -> _Version:
        try:
            state = self._path.stat()
        except OSError:
            return None
        return state.st_mtime_ns, state.st_size, state.st_ino

    def _read(self) -> dict[_Digest, str]:
        """Raises LaunchError, without anything of the line that is wrong: it may have a key."""
        users: dict[_Digest, str] = {}
        for number, line in enumerate(read_private(self._path, self._option).splitlines(), 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if problem := _find_problem(words, users):
                raise LaunchError(f"{self._path} of {self._option}, line {number}: {problem}")
            users[_to_digest(words[1])] = words[0]
        if not users:
            raise LaunchError(f"{self._path} of {self._option} has no key: write a line with a user and a key into it")
        return users


def _find_problem(words: list[str], users: dict[_Digest, str]) -> str:
    """Returns what is wrong with a line after these users; empty if nothing is."""
    if len(words) != 2:
        return f"it needs a user and a key with a blank between them, and has {len(words)} words"
    user, key = words
    if not _KEY.fullmatch(key):
        return "the key has characters that no header can have; use printable ASCII"
    if key.startswith("sha256:") and not _DIGEST.fullmatch(key):
        return "after sha256: there must be 64 hexadecimal digits in small letters"
    if len(key) < _MIN_KEY_CHARS:
        return f"the key has less than {_MIN_KEY_CHARS} characters; `openssl rand -hex 32` makes one"
    if user in users.values():
        return "this user has a key already"
    return "another user has this key already" if _to_digest(key) in users else ""


def _to_digest(key: str) -> _Digest:
    found = _DIGEST.fullmatch(key)
    return bytes.fromhex(found[1]) if found else sha256(key.encode()).digest()

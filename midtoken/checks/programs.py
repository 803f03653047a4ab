"""Runs other programs for a moment."""

import shutil
import subprocess
from collections.abc import Mapping, Sequence

_TIMEOUT_S = 20.0


class Programs:
    """The programs on the path of an environment."""

    def __init__(self, environment: Mapping[str, str], timeout_s: float = _TIMEOUT_S) -> None:
        self._environment = dict(environment)
        self._timeout_s = timeout_s

    def find(self, name: str) -> str | None:
        """Returns where a program is."""
        return shutil.which(name, path=self._environment.get("PATH", ""))

    def read_output(self, command: Sequence[str]) -> str | None:
        """Returns what a command prints; None if it fails or takes too long."""
        try:
            done = subprocess.run(
                command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self._timeout_s,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout if done.returncode == 0 else None

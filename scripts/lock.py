"""Writes the newest versions of everything that `make setup` and the benchmarks install to requirements.lock.

Run it in the project's environment. pip chooses the versions and installs nothing.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[1]
_WANTED = (
    "--editable",
    ".[local,torch,triton,playground]",
    "--group",
    "dev",
    "--group",
    "bench",
    "pip",
    "setuptools",
)
_HEADER = """\
# Every version that `make setup` installs, tried on Linux x86_64 with Python {version}. Made by `make lock`.
# pip takes this file as constraints. Local versions such as torch's +cpu are left out: 2.13.0 matches 2.13.0+cpu too.
"""


def main() -> None:
    versions = {item["metadata"]["name"].lower(): item["metadata"]["version"] for item in _resolve()}
    del versions["midtoken"]
    lines = [f"{name}=={version.partition('+')[0]}\n" for name, version in sorted(versions.items())]
    header = _HEADER.format(version=f"{sys.version_info.major}.{sys.version_info.minor}")
    (_ROOT / "requirements.lock").write_text(header + "".join(lines))


def _resolve() -> list[dict[str, Any]]:
    """Returns what pip would install into an empty environment: the `install` list of its installation report."""
    options = ("--dry-run", "--ignore-installed", "--no-build-isolation", "--quiet", "--report", "-")
    command = [sys.executable, "-m", "pip", "install", *options, *_WANTED]
    report = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE, check=True).stdout
    installed: list[dict[str, Any]] = json.loads(report)["install"]
    return installed


if __name__ == "__main__":
    main()

"""Editors that speak HTTP: what they send at `return self._ite`, to any address.

Each file of `front_requests` has what one editor sends, and says how that is known.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from aiohttp import ClientSession

_FOLDER = Path(__file__).with_name("front_requests")
EDITORS = sorted(path.stem for path in _FOLDER.iterdir())
REST = "ms"  # of the word at the cursor


def read_sent(editor: str) -> dict[str, Any]:
    """Returns path, headers and body."""
    sent: dict[str, Any] = json.loads((_FOLDER / f"{editor}.json").read_text())
    return sent


async def complete_as(editor: str, url: str) -> str | None:
    """Returns the first line that the editor gets from the server at this address; None if it is refused."""
    sent = read_sent(editor)
    async with (
        ClientSession(headers=sent["headers"]) as session,
        session.post(f"{url}{sent['path']}", json=sent["body"]) as response,
    ):
        return _read_text(await response.text()).partition("\n")[0] if response.status == 200 else None


async def ask_as_editors(url: str, folder: Path) -> dict[str, list[str]]:
    """The editors that get the right word in front of an engine, and from the engine itself. The folder is for logs."""
    options = ("--port=0", f"--engine={url}", f"--state-dir={folder}")
    command = [sys.executable, "-m", "midtoken", "serve", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as front:
        try:
            assert front.stdout is not None
            address = next(line.split()[1] for line in front.stdout if line.startswith("  HTTP "))
            places = {"front_clients": address, "front_clients_plainly": url}
            return {
                name: [each for each in EDITORS if await complete_as(each, at) == REST] for name, at in places.items()
            }
        finally:
            front.terminate()


def _read_text(answer: str) -> str:
    """Returns the first text of an answer, or of a stream of events or lines, as editors read it."""
    lines = [line.removeprefix("data: ") for line in answer.split("\n")]
    return "".join(_find_text(json.loads(line)) for line in lines if line not in ("", "[DONE]"))


def _find_text(part: Any) -> str:
    """The names of the field are those of the protocols."""
    first = part[0] if isinstance(part, list) else part
    choice = first["choices"][0] if "choices" in first else first
    place = choice.get("delta") or choice.get("message") or choice
    return str(next(place[name] for name in ("text", "content", "response") if name in place))

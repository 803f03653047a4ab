"""Runs the real language server on stdio with a scripted model: `python -m tests.support.scripted_server FILE`.

FILE is JSON: {"rules": [{"ends_with", "texts", "delay_s"}], "log": PATH, "start_s": 0, "start_error": null}.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

from inference.errors import LaunchError, silence_libraries
from lsp_server.backend import CompletionBackend, Connect, OnDownload
from lsp_server.exclusion import Policy
from lsp_server.server import MidtokenServer, serve_stdio
from lsp_server.settings import Settings
from tests.support.lsp_fakes import ScriptedBackend


def main() -> NoReturn:
    silence_libraries()
    script = json.loads(Path(sys.argv[1]).read_text())
    serve_stdio(MidtokenServer(build_connect(script), policy=Policy(os.environ)))


def build_connect(script: dict[str, Any]) -> Connect:
    """Returns a function that connects to the scripted model."""

    async def connect(_settings: Settings, _on_download: OnDownload) -> CompletionBackend:
        await asyncio.sleep(script.get("start_s", 0))
        if script.get("start_error"):
            raise LaunchError(script["start_error"])
        return ScriptedBackend(script["rules"], Path(script["log"]))

    return connect


if __name__ == "__main__":
    main()

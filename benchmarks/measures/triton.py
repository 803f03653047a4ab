"""A completion server for a benchmark, with tritonserver as users run it."""

import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from inference.config import EngineConfig
from inference.serving.launcher import ServerOptions, TritonServer
from midtoken.installed import find_model_repository


@asynccontextmanager
async def run_triton(model: EngineConfig) -> AsyncIterator[str]:
    """Runs a server of its own inside the block, and yields its URL."""
    with tempfile.TemporaryDirectory(prefix="midtoken-") as folder:
        options = ServerOptions(model, find_model_repository().resolve(), Path(folder) / "server")
        server = await TritonServer.start(options, os.environ, print)
        try:
            yield server.url
        finally:
            await server.stop(may_drain=False)

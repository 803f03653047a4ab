"""A host for a benchmark, as an editor starts it."""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from inference.client.local_host import HostPlace
from inference.config import VARIABLE, EngineConfig
from inference.platforms import IMPORT_ROOT
from midtoken.installed import find_model_repository

_IDLE_S = 86_400  # without clients
_POLL_S = 0.02


@asynccontextmanager
async def run_host(model: EngineConfig) -> AsyncIterator[str]:
    """Runs a host of its own inside the block, and yields its URL."""
    with tempfile.TemporaryDirectory(prefix="midtoken-") as folder:
        place = HostPlace.find(Path(folder) / "host", model)
        named = [str(place.socket), str(find_model_repository().resolve()), str(_IDLE_S)]
        host = subprocess.Popen(
            [sys.executable, "-m", "inference.hosting.host", *named],
            cwd=IMPORT_ROOT,
            env={**os.environ, VARIABLE: model.to_json()},
            stdout=sys.stderr,
        )
        try:
            while not place.is_served():
                if host.poll() is not None:
                    raise RuntimeError("the host ended while starting")
                await asyncio.sleep(_POLL_S)
            yield place.url
        finally:
            host.terminate()
            host.wait()

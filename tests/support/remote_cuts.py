"""Completions by a server's model, compared with those of our own engine, which has the same weights."""

import random
import urllib.request
from contextlib import closing
from pathlib import Path

from inference.config import EngineConfig
from inference.engine.assembly import load_engine
from inference.engine.sink import complete
from inference.protocol.completion import CompletionRequest
from inference.remote.engine import load_remote_engine
from midtoken.installed import find_default_model


def find_differences(url: str, num_cuts: int) -> list[tuple[str, ...]]:
    """Of cuts inside words, every second with a suffix: the text before, and what the two wrote where that differs."""
    folder, draw, different = find_default_model(), random.Random(0), []
    texts = [path.read_text() for path in sorted(Path("lsp_server").glob("*.py"))]
    config, own_config = (EngineConfig(folder, engine_url=each, max_context_tokens=128) for each in (url, ""))
    with closing(load_remote_engine(config)) as remote, closing(load_engine(own_config)) as own:
        for number in range(num_cuts):
            text = draw.choice(texts)
            at = draw.choice([at for at in range(1, len(text)) if text[at - 1 : at + 1].isalnum()])
            suffix = text[at : at + 200] if number % 2 else ""
            request = CompletionRequest(text[:at], suffix, max_tokens=8, document=str(number % 3))
            written = [complete(engine, request)[0] for engine in (remote, own)]
            if written[0] != written[1]:
                different.append((text[at - 20 : at], *written))
    return different


def is_healthy(url: str) -> bool:
    """True if the server answers that it can complete."""
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False

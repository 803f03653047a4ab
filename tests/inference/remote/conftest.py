from collections.abc import Iterator
from pathlib import Path

import pytest

from inference.config import EngineConfig
from inference.engine.engine import Engine
from inference.healing.loaded_tokenizer import LoadedTokenizer, load_tokenizer
from inference.remote.assembly import load_remote_engine
from tests.support.fake_llama_server import FakeLlamaServer, run_fake_llama_server

FOLDER = Path("models/default").absolute()


@pytest.fixture(scope="session")
def tokenizer() -> LoadedTokenizer:
    return load_tokenizer(FOLDER)


@pytest.fixture(scope="module")
def running(tokenizer: LoadedTokenizer) -> Iterator[tuple[FakeLlamaServer, FakeLlamaServer]]:
    model = tokenizer.encoder, tokenizer.vocabulary.num_rows
    with run_fake_llama_server(*model) as server, run_fake_llama_server(*model) as other:
        yield server, other


@pytest.fixture
def server(running: tuple[FakeLlamaServer, FakeLlamaServer]) -> FakeLlamaServer:
    running[0].reset()
    return running[0]


@pytest.fixture
def other(running: tuple[FakeLlamaServer, FakeLlamaServer]) -> FakeLlamaServer:
    running[1].reset()
    return running[1]


def load_in_front(*urls: str) -> Engine:
    """An engine in front of the servers at these addresses, which have the default model."""
    return load_remote_engine(EngineConfig(FOLDER, engine_url=", ".join(urls), fill_in_layout="none"))

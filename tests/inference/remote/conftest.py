from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from inference.config import EngineConfig
from inference.engine.engine import Engine
from inference.healing.loaded_tokenizer import LoadedTokenizer, load_tokenizer
from inference.remote.executor import load_remote_engine
from tests.support.fake_llama_server import FakeLlamaServer, run_fake_llama_server

FOLDER = Path("models/default").absolute()


@pytest.fixture(scope="session")
def tokenizer() -> LoadedTokenizer:
    return load_tokenizer(FOLDER)


@pytest.fixture(scope="module")
def running(tokenizer: LoadedTokenizer) -> Iterator[FakeLlamaServer]:
    with run_fake_llama_server(tokenizer.encoder, tokenizer.vocabulary.num_rows) as server:
        yield server


@pytest.fixture
def server(running: FakeLlamaServer) -> FakeLlamaServer:
    running.reset()
    return running


def load_in_front(url: str) -> Engine:
    """An engine in front of the server at this address, which has the bundled model."""
    return load_remote_engine(EngineConfig(FOLDER, engine_url=url, fill_in_layout="none"))


@pytest.fixture(scope="module")
def engine(running: FakeLlamaServer) -> Iterator[Engine]:
    with closing(load_in_front(running.url)) as engine:
        yield engine

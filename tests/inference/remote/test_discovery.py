"""Which model of a server is asked."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from inference.errors import ModelError
from inference.healing.loaded_tokenizer import LoadedTokenizer
from inference.protocol.completion import CompletionRequest
from tests.inference.remote.conftest import load_in_front
from tests.support.fake_llama_server import FakeLlamaServer, run_fake_server
from tests.support.fake_named_servers import FakeNamedServer, FakeSglangServer, FakeVllmServer
from tests.support.sinks import complete

_REQUEST = CompletionRequest("def f(x):\n    ret", max_tokens=2, tenant="ann")


@pytest.fixture(scope="module")
def router(tokenizer: LoadedTokenizer) -> Iterator[FakeLlamaServer]:
    fake = FakeLlamaServer(tokenizer.encoder, tokenizer.vocabulary.num_rows)
    with run_fake_server(fake, "/completion") as server:
        server.models_served = ("ann/Coder:Q8_0", "ann/Coder:Q4_0", "other")
        yield server


@pytest.fixture(scope="module")
def vllm(tokenizer: LoadedTokenizer) -> Iterator[FakeNamedServer]:
    fake = FakeVllmServer(tokenizer.encoder, tokenizer.vocabulary.num_rows)
    with run_fake_server(fake, "/v1/completions") as server:
        server.adapters = ("first", "second")
        yield server


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("ann/Coder:Q4_0", "ann/Coder:Q4_0"),
        ("/models/coder:q8_0.gguf?", "ann/Coder:Q8_0"),
        ("bob/Other@main?", "other"),
    ],
)
def test_a_router_is_asked_for_the_model_that_is_named(router: FakeLlamaServer, name: str, asked: str) -> None:
    router.asked.clear()
    with closing(load_in_front(f"{router.url}#{name}")) as engine:
        assert complete(engine, _REQUEST).text
    assert {body["model"] for body in router.asked} == {asked}


@pytest.mark.parametrize(("name", "asked"), [("second", "second"), ("/models/M?", "m"), ("ann/m?", "m")])
def test_of_a_model_and_its_adapters_the_one_that_is_named_is_asked(
    vllm: FakeNamedServer, name: str, asked: str
) -> None:
    vllm.asked.clear()
    with closing(load_in_front(f"{vllm.url}#{name}")) as engine:
        assert complete(engine, _REQUEST).text
    assert {body["model"] for body in vllm.asked} == {asked}


@pytest.mark.parametrize(
    ("name", "which"),
    [("", "several models"), ("#coder?", "several models"), ("#none?", "several models"), ("#none", "no model 'none'")],
)
def test_several_models_of_which_none_is_named_are_listed(router: FakeLlamaServer, name: str, which: str) -> None:
    names = "it has 'ann/Coder:Q8_0', 'ann/Coder:Q4_0', 'other'; name one with --engine http://127.0.0.1:"
    with pytest.raises(ModelError, match=f"has {which}: {names}"):
        load_in_front(f"{router.url}{name}")


def test_an_adapter_of_sglang_is_refused_by_name(tokenizer: LoadedTokenizer) -> None:
    fake = FakeSglangServer(tokenizer.encoder, tokenizer.vocabulary.num_rows)
    with run_fake_server(fake, "/generate") as server:
        server.adapters = ("first",)
        with pytest.raises(ModelError, match="'first' as an adapter"):
            load_in_front(f"{server.url}#first")

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest

from inference.engine.layout import Layout
from tests.support.engine_bench import Bench, ScriptedBench, build_bench, build_scripted_bench
from tests.support.memorised import write_memorised_model
from tests.support.toys import toy_tokenizer, write_model

MakeModel = Callable[..., Path]
Memorised = Callable[[Layout | None], Path]


@pytest.fixture(scope="session")
def make_model(tmp_path_factory: pytest.TempPathFactory) -> MakeModel:
    """A function that returns the folder of a tiny random model for a kind of tokenizer. Each model is made once."""
    folder = tmp_path_factory.mktemp("models")

    def make(kind: str = "qwen", family: str = "llama", **changes: int) -> Path:
        name = "-".join([kind, family, *(f"{key}={value}" for key, value in sorted(changes.items()))])
        if not (folder / name).exists():
            write_model(folder / name, toy_tokenizer(kind), family, **changes)
        return folder / name

    return make


@pytest.fixture(scope="session")
def memorised(tmp_path_factory: pytest.TempPathFactory) -> Memorised:
    """A function that returns the folder of a model that was trained on fill-in markers in a layout, or on none."""
    folder = tmp_path_factory.mktemp("memorised")

    @cache
    def make(layout: Layout | None) -> Path:
        return write_memorised_model(folder / str(layout), layout)

    return make


@pytest.fixture
def bench(make_model: MakeModel) -> Iterator[Bench]:
    bench = build_bench(make_model("qwen"), "qwen")
    with closing(bench.engine):
        yield bench


@pytest.fixture
def scripted() -> Iterator[ScriptedBench]:
    """An engine with a model without weights."""
    bench = build_scripted_bench()
    with closing(bench.engine):
        yield bench

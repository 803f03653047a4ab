from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from inference.engine.fill_in import Layout

if TYPE_CHECKING:  # the fixtures import what they need, because other Pythons are tested without torch
    from tests.support.engine_bench import Bench, ScriptedBench

MakeModel = Callable[..., Path]
Memorised = Callable[[Layout | None], Path]


@pytest.fixture(scope="session")
def make_model(tmp_path_factory: pytest.TempPathFactory) -> MakeModel:
    """A function that returns the folder of a tiny random model for a kind of tokenizer. Each model is made once."""
    pytest.importorskip("torch")
    from tests.support.decoder_folders import write_model
    from tests.support.toys import toy_tokenizer

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
    pytest.importorskip("torch")
    from tests.support.memorised import write_memorised_model

    folder = tmp_path_factory.mktemp("memorised")

    @cache
    def make(layout: Layout | None) -> Path:
        return write_memorised_model(folder / str(layout), layout)

    return make


@pytest.fixture
def bench(make_model: MakeModel) -> "Iterator[Bench]":
    from tests.support.engine_bench import open_bench

    with open_bench(make_model("qwen"), "qwen") as bench:
        yield bench


@pytest.fixture
def scripted(request: pytest.FixtureRequest) -> "Iterator[ScriptedBench]":
    """An engine with a model without weights, and with the settings of `tests.support.engine_bench.with_settings`."""
    pytest.importorskip("torch")
    from tests.support.engine_bench import open_scripted_bench

    with open_scripted_bench(**getattr(request, "param", {})) as bench:
        yield bench

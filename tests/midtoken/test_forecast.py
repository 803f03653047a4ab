"""Whether a model runs here is said before its weights are downloaded, and why not if it does not."""

import json
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from shutil import copyfile
from typing import Any

import pytest

from benchmarks.baselines.gguf_file import write_tokenizer_gguf
from benchmarks.corpora.tokenizer_kinds import TOKENIZER_KINDS
from benchmarks.measures.report import read_rows
from inference.errors import ModelError
from inference.model import forecast as model_forecast
from midtoken.cli import main
from midtoken.commands.models import RECOMMENDED
from midtoken.models import run_forecast
from tests.support.hub import Hub, Repository, run_hub

_NAME = "owner/Model-0.5B"
_DEFAULT = Path("models/default").absolute()
_TEXTS = {path.name: path.read_bytes() for path in _DEFAULT.glob("*.json")}
_SPEC = next(kind for kind in TOKENIZER_KINDS if kind.name == "qwen2").build()
_NUM_MORE_BYTES = 8_000_000


def _write_weights(num_weights: int, dtype: str = "BF16") -> bytes:
    """A file whose description is right, and whose weights are as many as it says if they are few."""
    weights = {"w": {"dtype": dtype, "shape": [num_weights, 1], "data_offsets": [0, 2 * num_weights]}}
    header = json.dumps({"__metadata__": {"format": "pt"}, **weights}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(min(2 * num_weights, _NUM_MORE_BYTES))


def _write_gguf(folder: Path, **values: Any) -> bytes:
    """A file with a description, and what may be weights."""
    values = {"tokenizer.ggml.eos_token_id": 1, **values}
    content = write_tokenizer_gguf(folder / "a.gguf", _SPEC, "qwen2", **values).read_bytes()
    return content.ljust(len(content) + _NUM_MORE_BYTES)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME", "HF_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    with run_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield hub


def _try(name: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    status = main(["models", "try", name])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_a_folder_on_a_hub_is_judged_by_its_first_megabyte_with_which_the_download_goes_on(
    hub: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = _write_weights(4_000_000)
    hub.repositories[_NAME] = Repository.of({**_TEXTS, "model.safetensors": weights})
    status, said, _ = _try(_NAME, capsys)
    expected = rf"""licence          apache-2.0
download         0.01 GB
family           llama
runs with        onnxruntime, on the CPU
tokenizer        right, 8,192 tokens
window           2,048 tokens
weights          4 million, BF16
needs            about 0.6 GB of memory, of \d+ GB here, and what is remembered of texts
No obstacle was found. midtoken models get {_NAME} downloads it; try then measures its speed.
"""
    assert (status, bool(re.fullmatch(expected, said))) == (0, True), said
    assert hub.num_sent_bytes == 2**20
    assert main(["models", "get", _NAME]) == 0
    assert hub.num_sent_bytes == len(weights)


@pytest.mark.skipif(find_spec("torch") is None, reason="what runs the family is not here")
def test_a_model_that_is_too_large_is_said_to_be_so(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    config = json.dumps({**json.loads(_TEXTS["config.json"]), "model_type": "qwen3_moe"}).encode()
    parts = {f"model-{number:05}-of-00002.safetensors": _write_weights(10**13) for number in (1, 2)}
    hub.repositories[_NAME] = Repository.of({**_TEXTS, "config.json": config, **parts}, tags=())
    status, said, error = _try(_NAME, capsys)
    assert "licence          not named\ndownload         0.02 GB\nfamily           qwen3_moe\n" in said
    assert "runs with        PyTorch, because its family is 'qwen3_moe', and only " in said
    assert "weights          20,000,000 million, BF16" in said
    assert re.search(r"too large for this machine: it needs about 80,000.6 GB of memory, of \d+ GB here$", error)
    assert (status, hub.num_sent_bytes) == (1, 2**20)  # both parts have the same content


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        (
            {"config.json": b'{"model_type": "mamba", "eos_token_id": 1}'},
            "family 'mamba' cannot be run|family is 'mamba'",
        ),
        ({"tokenizer.json": b'{"model": {"type": "Unigram"}}'}, "tokenizer.json: model type Unigram is not supported"),
        (
            {"model.safetensors": _write_weights(9, "F8_E4M3")},
            "has quantized weights, of the type F8_E4M3",
        ),
        ({"model.safetensors": b"\3\0\0\0\0\0\0\0{}?"}, "model.safetensors is no safetensors file, or is damaged"),
    ],
)
def test_a_folder_that_cannot_be_run_is_refused_with_the_reason(
    files: dict[str, bytes], sentence: str, hub: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.repositories[_NAME] = Repository.of({**_TEXTS, "model.safetensors": _write_weights(4_000_000), **files})
    status, said, error = _try(_NAME, capsys)
    assert (status, said, bool(re.search(sentence, error)), "midtoken-model-" in error) == (1, "", True, False), error


def test_a_gguf_file_on_a_hub_is_judged_by_its_first_megabytes(
    hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("llama_cpp", reason="make gguf installs it")
    hub.repositories[_NAME] = Repository.of({"a-Q8_0.gguf": _write_gguf(tmp_path, **{"general.file_type": 7})})
    status, said, _ = _try(f"{_NAME}:q8_0", capsys)
    assert (status, "family           llama\nruns with        llama.cpp\ntokenizer        right, " in said) == (0, True)
    assert ("million, Q8_0\n" in said, f"midtoken models get {_NAME}:q8_0 downloads it" in said) == (True, True)
    [begun] = tmp_path.rglob("*.incomplete")
    assert begun.stat().st_size < 3_000_000


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            {"general.architecture": "mystery", "mystery.context_length": 64},
            r"llama-cpp-python [0-9.]+, has no family 'mystery'",
        ),
        ({"general.architecture": "t5encoder", "t5encoder.context_length": 64}, "has an encoder"),
    ],
)
def test_a_gguf_file_that_cannot_be_run_is_refused_with_the_reason(
    values: dict[str, Any], sentence: str, hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("llama_cpp", reason="make gguf installs it")
    hub.repositories[_NAME] = Repository.of({"a.gguf": _write_gguf(tmp_path, **values)})
    status, said, error = _try(f"{_NAME}:a.gguf", capsys)
    assert (status, said, bool(re.search(sentence, error))) == (1, "", True), error


def test_a_folder_here_is_judged_without_its_weights(tmp_path: Path) -> None:
    for name, content in _TEXTS.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "model.safetensors").write_bytes(_write_weights(500_000_000))
    found = run_forecast(tmp_path)
    assert (found["weights"], found["needs"].partition(",")[0]) == ("500 million, BF16", "about 1.2 GB of memory")
    copyfile(_DEFAULT / "model.safetensors", tmp_path / "model.safetensors")
    assert model_forecast.forecast(tmp_path)["weights"] == "7 million, BF16"
    with pytest.raises(ModelError, match="does not exist; a model is a folder"):
        run_forecast(tmp_path / "none")


def test_the_recommended_models_are_of_families_that_are_right() -> None:
    right = {row.get("family", row.get("name")) for row in read_rows("models") if row["outcome"] == "right"}
    assert {family for family, _ in RECOMMENDED.values()} <= right

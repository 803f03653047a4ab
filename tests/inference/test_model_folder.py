"""What is no complete model is refused in one sentence, before anything is loaded; the same for all commands."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from inference.config import EngineConfig
from inference.errors import ModelError
from inference.model.loader import load_model
from inference.model_folder import check_model_folder
from midtoken.cli import main

_POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
_INDEX = "model.safetensors.index.json"
_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors")
_Change = Callable[[Path], object]


def _replace(name: str, **files: str) -> _Change:
    """Another file, or several, in the place of one."""

    def change(folder: Path) -> None:
        (folder / name).unlink()
        for other, content in files.items():
            (folder / other.replace("__", ".")).write_text(content)

    return change


def _write(name: str, content: str) -> _Change:
    return lambda folder: (folder / name).write_text(content)


def _link(path: Path, target: str) -> None:
    path.unlink()
    path.symlink_to(target)


_FAULTS: dict[str, _Change] = {
    "does not exist; a model is a folder with config.json": shutil.rmtree,
    "is not a model folder: it has no config.json": _replace("config.json"),
    "no config.json, but m.gguf: name that file instead of its folder": _replace("config.json", m__gguf="GGUF"),
    "has no weights (model.safetensors), but m.gguf: name": _replace("model.safetensors", m__gguf="GGUF"),
    "has an adapter (adapter_config.json)": _write("adapter_config.json", "{}"),
    "quantized by 'gptq' (quant": _write("config.json", '{"quantization_config": {"quant_method": "gptq"}}'),
    "quantized by 'a method without a name' (": _write("config.json", '{"quantization_config": {"bits": 4}}'),
    "no config.json, but the files of Mistral's own format": _replace("config.json", params__json="{}"),
    "the model folder has no tokenizer.json": _replace("tokenizer.json"),
    "but merges.txt: vocab.json and merges.txt": _replace("tokenizer.json", merges__txt="", vocab__json="{}"),
    "but vocab.json: a vocabulary alone": _replace("tokenizer.json", vocab__json="{}"),
    "but tokenizer.model: SentencePiece's format": _replace("tokenizer.json", tokenizer__model=""),
    "but qwen.tiktoken: tiktoken's format": _replace("tokenizer.json", qwen__tiktoken=""),
    "but tekken.json: Mistral's format": _replace("tokenizer.json", tekken__json=""),
    "/tokenizer.json is a Git LFS pointer": _write("tokenizer.json", _POINTER),
    "/model.safetensors is a Git LFS pointer": _write("model.safetensors", _POINTER),
    "/config.json is a Git LFS pointer": _write("config.json", _POINTER),
    "has no weights (model.safetensors)": _replace("model.safetensors"),
    "no weights (model.safetensors), but m.onnx, which": _replace("model.safetensors", m__onnx=""),
    f"/{_INDEX}: not an object of JSON": _replace("model.safetensors", **{_INDEX: "[]"}),
    f"/{_INDEX} cannot be read: it has no weight_map": _replace("model.safetensors", **{_INDEX: "{}"}),
    "/midtoken.json is no file": lambda folder: os.mkfifo(folder / "midtoken.json"),
    "/tokenizer.json is no file": lambda folder: _link(folder / "tokenizer.json", "/dev/zero"),
    "/config.json: not an object of JSON": _write("config.json", "[]"),
    "cannot read {}/config.json: maximum recursion depth": _write("config.json", "[" * 100_000),
    "/config.json: num_hidden_layers is 50000000, which no model has": _write(
        "config.json", '{"text_config": {"num_hidden_layers": 50000000}}'
    ),
    "/config.json: max_position_embeddings is 0, which no model has": _write(
        "config.json", '{"max_position_embeddings": 0}'
    ),
    "/config.json: head_dim is 1000000000, which no model has": _write("config.json", '{"head_dim": 1000000000}'),
    "cannot read {}/added_tokens.json: [Errno 2]": lambda folder: (folder / "added_tokens.json").symlink_to("nothing"),
    "names a file outside of the folder: 'aaa": _replace(
        "model.safetensors", **{_INDEX: f'{{"weight_map": {{"a": "{300 * "a"}"}}}}'}
    ),
    "brings code of its own (modeling_mine.MyModelForCausalLM, auto_map": _write(
        "config.json",
        '{"model_type": "llama", "auto_map": {"AutoModelForCausalLM": "modeling_mine.MyModelForCausalLM"}}',
    ),
    "outside of the folder: '/a'": _replace("model.safetensors", **{_INDEX: '{"weight_map": {"a": "/a"}}'}),
    f"7, which {{}}/{_INDEX} names, is missing": _replace("model.safetensors", **{_INDEX: '{"weight_map": {"a": 7}}'}),
    f"b.bin, which {{}}/{_INDEX} names, is missing": _replace(
        "model.safetensors", **{_INDEX: '{"weight_map": {"a": "b.bin"}}'}
    ),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    for name in _FILES:
        shutil.copy(Path("models/default") / name, folder)
    check_model_folder(folder)
    return folder


@pytest.mark.parametrize("words", _FAULTS)
def test_each_fault_has_its_own_sentence_in_the_engine_and_on_the_command_line(
    words: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _FAULTS[words](folder)

    with pytest.raises(ModelError) as raised:
        load_model(EngineConfig(folder))

    assert words.format(folder) in str(raised.value)
    assert "\n" not in str(raised.value)
    assert str(folder) in str(raised.value)
    assert main(["complete", f"{__file__}:1", "--model", str(folder)]) == 1
    assert capsys.readouterr().err == f"midtoken: {raised.value}\n"

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
import transformers
from safetensors.torch import load_file
from tokenizers import Tokenizer

from models.training.corpus import iter_held_out

gguf = pytest.importorskip("gguf", reason="make bench-latency installs gguf")

from benchmarks.baselines.gguf_file import Precision, write_gguf  # noqa: E402  # it imports gguf

_MODEL_DIR = Path("models/default").absolute()
_LLAMA_CPP = Path("build/contestants/llama_cpp")
_NUM_TOKENS = 300  # of each text whose logits are compared

# Reads {"gguf", "texts", "logits"} and prints the token ids of the texts; writes the logits of all of them to a file.
# Keys and values in float32 (type 0), so that nothing but the order of additions differs from transformers.
_PROBE = f"""
import json, sys
import numpy as np
from llama_cpp import Llama
job = json.load(sys.stdin)
llama = Llama(job["gguf"], n_ctx=2048, logits_all=True, n_threads=1, type_k=0, type_v=0, verbose=False)
ids = [llama.tokenize(text.encode(), add_bos=False, special=False) for text in job["texts"]]
rows = []
for each in ids:
    llama.reset()
    llama.eval(each[:{_NUM_TOKENS}])
    rows.append(llama.scores[: llama.n_tokens].copy())
np.save(job["logits"], np.concatenate(rows))
print(json.dumps(ids))
"""


def test_float32_holds_the_same_weights(tmp_path: Path) -> None:
    tensors = _read(tmp_path, Precision.F32)

    original = load_file(_MODEL_DIR / "model.safetensors")
    assert len(tensors) == len(original)
    for name, theirs in (("token_embd", "embed_tokens"), ("blk.5.ffn_down", "layers.5.mlp.down_proj")):
        np.testing.assert_array_equal(tensors[f"{name}.weight"], original[f"model.{theirs}.weight"].float().numpy())


@pytest.mark.parametrize(("name", "theirs"), [("attn_q", "q_proj"), ("attn_k", "k_proj")])
def test_the_halves_of_each_head_alternate(tmp_path: Path, name: str, theirs: str) -> None:
    converted = _read(tmp_path, Precision.F32)[f"blk.3.{name}.weight"]

    original = load_file(_MODEL_DIR / "model.safetensors")[f"model.layers.3.self_attn.{theirs}.weight"].float().numpy()
    head_dim = 64
    for row in range(len(original)):
        head, dim = divmod(row, head_dim)
        half, place = divmod(dim, head_dim // 2)
        np.testing.assert_array_equal(converted[head * head_dim + 2 * place + half], original[row])


def test_eight_bits_are_within_half_a_step(tmp_path: Path) -> None:
    exact, rounded = _read(tmp_path, Precision.F32), _read(tmp_path, Precision.Q8_0)

    for name, tensor in exact.items():
        blocks, difference = tensor.reshape(-1, 32), (rounded[name] - tensor).reshape(-1, 32)
        step = np.abs(blocks).max(1, keepdims=True) / 127
        assert np.all(np.abs(difference) <= step * (0.5 + 127 * 2**-11) + 1e-9)  # the scale itself is in float16


def test_the_tokens_are_those_of_the_tokenizer(tmp_path: Path) -> None:
    fields = _write(tmp_path, Precision.F16).fields

    tokenizer = Tokenizer.from_file(str(_MODEL_DIR / "tokenizer.json"))
    file = json.loads((_MODEL_DIR / "tokenizer.json").read_text())
    spelled = [tokenizer.id_to_token(token_id) for token_id in range(tokenizer.get_vocab_size())]
    types = fields["tokenizer.ggml.token_type"].contents()
    assert fields["tokenizer.ggml.tokens"].contents() == spelled
    assert fields["tokenizer.ggml.merges"].contents() == [" ".join(merge) for merge in file["model"]["merges"]]
    assert [index for index, kind in enumerate(types) if kind != gguf.TokenType.NORMAL] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("file_name", "keys", "value", "reason"),
    [
        ("config.json", ("rope_parameters", "rope_type"), "llama3", "rope_type"),
        ("config.json", ("model_type",), "qwen2", "model_type"),
        ("tokenizer.json", ("pre_tokenizer", "pretokenizers", 0, "pattern", "Regex"), "\\w+", "no name"),
        ("tokenizer.json", ("normalizer",), {"type": "NFC"}, "normalizer"),
    ],
)
def test_what_would_be_another_model_is_refused(
    tmp_path: Path, file_name: str, keys: tuple[str | int, ...], value: object, reason: str
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(_MODEL_DIR, folder)
    file: Any = json.loads((folder / file_name).read_text())
    inner = file
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    (folder / file_name).write_text(json.dumps(file))

    with pytest.raises(ValueError, match=reason):
        write_gguf(folder, tmp_path / "refused.gguf", Precision.F32)


@pytest.mark.skipif(not (_LLAMA_CPP / ".ready").exists(), reason=f"make {_LLAMA_CPP}/.ready builds llama.cpp")
def test_llama_cpp_computes_what_transformers_does(tmp_path: Path) -> None:
    path, logits = tmp_path / "model.gguf", tmp_path / "logits.npy"
    write_gguf(_MODEL_DIR, path, Precision.F32)
    texts = [file.text[500:2000] for file in list(iter_held_out())[::7]] + ["\tnaïve = '日本 🙂'\r\n\n  it's 1234\n "]
    job = {"gguf": str(path), "texts": texts, "logits": str(logits)}
    command = [str(_LLAMA_CPP.absolute() / "bin" / "python"), "-c", _PROBE]

    printed = subprocess.run(command, input=json.dumps(job), stdout=subprocess.PIPE, check=True, text=True).stdout

    tokenizer = Tokenizer.from_file(str(_MODEL_DIR / "tokenizer.json"))
    expected = [tokenizer.encode(text).ids for text in texts]
    assert json.loads(printed) == expected
    np.testing.assert_allclose(np.load(logits), _compute_logits(expected), atol=2e-3)


def _compute_logits(ids: list[list[int]]) -> npt.NDArray[np.float32]:
    model = transformers.AutoModelForCausalLM.from_pretrained(_MODEL_DIR, dtype=torch.float32)
    with torch.inference_mode():
        rows = [model(torch.tensor([each[:_NUM_TOKENS]])).logits[0].numpy() for each in ids]
    return np.concatenate(rows)


def _write(folder: Path, precision: Precision) -> Any:  # a GGUFReader
    path = folder / f"{precision}.gguf"
    write_gguf(_MODEL_DIR, path, precision)
    return gguf.GGUFReader(path)


def _read(folder: Path, precision: Precision) -> dict[str, npt.NDArray[np.float32]]:
    """The tensors as float32."""
    tensors = _write(folder, precision).tensors
    return {tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type) for tensor in tensors}

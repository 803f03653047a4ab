import json
import subprocess
from pathlib import Path

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


@pytest.mark.parametrize(("name", "theirs"), [("attn_q", "q_proj"), ("attn_k", "k_proj")])
def test_the_halves_of_each_head_alternate(tmp_path: Path, name: str, theirs: str) -> None:
    converted = _read(tmp_path, Precision.F32)[f"blk.3.{name}.weight"]

    original = load_file(_MODEL_DIR / "model.safetensors")[f"model.layers.3.self_attn.{theirs}.weight"].float().numpy()
    head_dim = 64
    for row in range(len(original)):
        head, dim = divmod(row, head_dim)
        half, place = divmod(dim, head_dim // 2)
        np.testing.assert_array_equal(converted[head * head_dim + 2 * place + half], original[row])


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


def _read(folder: Path, precision: Precision) -> dict[str, npt.NDArray[np.float32]]:
    """The tensors as float32."""
    path = folder / f"{precision}.gguf"
    write_gguf(_MODEL_DIR, path, precision)
    tensors = gguf.GGUFReader(path).tensors
    return {tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type) for tensor in tensors}

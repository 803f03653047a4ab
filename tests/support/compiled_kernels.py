"""Compiles the kernels of a choice for sm_90, without a GPU, as they are compiled at run time for 151,936 logits.

Run it as a program, without TRITON_INTERPRET. It prints a JSON list of the resources that each kernel uses.
"""

import json
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from inference.model.pytorch.choice_kernel import find_options, merge_chunks, score_chunks
from inference.model.pytorch.scoring import CHUNK_SIZE

_NUM_LOGITS = 151_936
_DTYPES = (torch.bfloat16, torch.float16, torch.float32)
_POINTERS = {"batch": "*i64", "ranks": "*i32", "parts": "*fp32", "results": "*fp32"}
_RESOURCES = ("REG", "STACK", "LOCAL", "SHARED")
_ALIGNED = [["tt.divisibility", 16]]  # as all memory of torch


def _compile(kernel: Any, dtype: torch.dtype) -> Any:
    options = find_options(-(-_NUM_LOGITS // CHUNK_SIZE), CHUNK_SIZE, dtype)
    constants = {name: value for name, value in options.items() if name in kernel.arg_names}
    signature = {name: "constexpr" if name in constants else _POINTERS.get(name, "i32") for name in kernel.arg_names}
    attributes = {(place,): _ALIGNED for place, name in enumerate(kernel.arg_names) if name in _POINTERS}
    source = ASTSource(kernel, signature, constexprs=constants, attrs=attributes)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": options["num_warps"]})


def _read_resources(binary: bytes) -> dict[str, int]:
    program = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        command = [str(program), "--dump-resource-usage", file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = {name: re.search(rf"\b{name}:(\d+)", text) for name in _RESOURCES}
    return {name.lower(): int(match[1]) for name, match in found.items() if match}


def main() -> None:
    """Prints the resources of both kernels for each type of logits."""
    report = []
    for kernel in (score_chunks, merge_chunks):
        for dtype in _DTYPES:
            compiled = _compile(kernel, dtype)
            loads = re.findall(r"ld\.global\S*?\.v4\.", compiled.asm["ptx"])
            resources = _read_resources(compiled.asm["cubin"])
            report.append({"kernel": kernel.__name__, "dtype": str(dtype), "vector_loads": len(loads), **resources})
    print(json.dumps(report))


if __name__ == "__main__":
    main()

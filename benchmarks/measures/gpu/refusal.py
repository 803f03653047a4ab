"""A request that the device has no memory for: it is refused, and the engine answers the next one.

The memory of the process is limited to what it has, and some MiB: by torch on a GPU, by the system elsewhere. The limit
stays, so this is the last that is measured in a process.
"""

import resource
from pathlib import Path

import torch

from benchmarks.corpora.repository_text import cut_text
from benchmarks.measures.gpu.completions import complete_all
from benchmarks.measures.gpu.setting import Deadline, Figures, RandomEngine, Setting
from inference.errors import MidtokenError, OverloadedError
from inference.protocol.completion import CompletionRequest, Extent


def measure_refusal(loaded: RandomEngine, _deadline: Deadline) -> Figures:
    """`refusal_keeps_engine`. Raises RuntimeError if the long request had memory, or another error came."""
    sizes, parts, engine = loaded.setting.sizes, loaded.loaded, loaded.engine
    small = CompletionRequest("import os\nvalue = q", max_tokens=2, extent=Extent.BLOCK)
    text = cut_text(parts.tokenizer.encoder, parts.tokenizer.vocabulary, sizes.num_long)
    long = CompletionRequest(text + "value = q", max_tokens=1, extent=Extent.BLOCK)
    complete_all(engine, [small])
    _limit_memory(loaded.setting)
    try:
        complete_all(engine, [long])
    except OverloadedError as error:
        refusal = str(error)
    except MidtokenError as error:
        raise RuntimeError(f"the long request failed with {type(error).__name__}: {error}") from error
    else:
        raise RuntimeError(f"{sizes.num_spare_mib} MiB were enough for {sizes.num_long} tokens")
    print(f"refused: {refusal}")
    [after] = complete_all(engine, [small])
    return {"refusal_keeps_engine": after.stats.num_tokens > 0, "refusal_tokens": sizes.num_long}


def _limit_memory(setting: Setting) -> None:
    spare = setting.sizes.num_spare_mib * 2**20
    if setting.is_cuda:
        torch.cuda.empty_cache()
        used = torch.cuda.memory_reserved()
        total = torch.cuda.get_device_properties(setting.device).total_memory
        torch.cuda.set_per_process_memory_fraction((used + spare) / total)
        return
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + spare, hard))

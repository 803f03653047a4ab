"""Whether memory grows with the number of requests: the default model, several requests at once.

The same requests come again between two marks, so the engine then remembers about the same. On a GPU, the memory is
what torch has allocated; elsewhere it is that of the process.
"""

import gc
import resource
from contextlib import closing
from pathlib import Path

import torch

from benchmarks.corpora.repository_text import read_repository
from benchmarks.measures.gpu.completions import complete_all
from benchmarks.measures.gpu.right import DEFAULT_MODEL
from benchmarks.measures.gpu.setting import Deadline, Figures, Setting
from inference.config import EngineConfig
from inference.engine.assembly import load_engine
from inference.protocol.completion import CompletionRequest, Extent

_AT_ONCE = 16
_MAX_TOKENS = 2
_MEMORY_MIB = 16
_NUM_CHARS = (40, 400, 1200, 90, 700)  # of the texts, in turn
_SHIFT = 611


def measure_memory(setting: Setting, deadline: Deadline) -> Figures:
    """`memory_…`. The first mark is a warm-up: growth counts from the second one."""
    config = EngineConfig(DEFAULT_MODEL, setting.device, setting.dtype, memory_mib=_MEMORY_MIB)
    num_between = setting.sizes.num_requests // setting.sizes.num_marks
    requests = [_build_request(index) for index in range(num_between)]
    marks: list[int] = []
    with closing(load_engine(config)) as engine:
        while len(marks) < setting.sizes.num_marks and not (deadline.is_over and len(marks) > 1):
            for start in range(0, num_between, _AT_ONCE):
                complete_all(engine, requests[start : start + _AT_ONCE])
            marks.append(_read_memory(setting))
    num_counted = (len(marks) - 2) * num_between
    growth = (marks[-1] - marks[1]) / num_counted if num_counted else None
    return {
        "memory_growth_bytes": growth,  # per request
        "memory_requests": len(marks) * num_between,
        "memory_first_mib": marks[1] / 2**20,
        "memory_last_mib": marks[-1] / 2**20,
        "memory_most_mib": max(marks) / 2**20,
    }


def _build_request(index: int) -> CompletionRequest:
    text = read_repository()
    start = index * _SHIFT % (len(text) - max(_NUM_CHARS))
    prefix = text[start : start + _NUM_CHARS[index % len(_NUM_CHARS)]]
    return CompletionRequest(prefix, max_tokens=_MAX_TOKENS, extent=Extent.BLOCK, document=f"file:///{index}.py")


def _read_memory(setting: Setting) -> int:
    """Bytes in use."""
    gc.collect()
    setting.synchronize()
    if setting.is_cuda:
        return int(torch.cuda.memory_allocated())
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()

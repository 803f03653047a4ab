"""Whether memory grows with the number of requests, and whether a request without memory is refused alone."""

import gc
import resource
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import torch

from benchmarks.corpora.repository_text import read_repository
from benchmarks.measures.gpu_engine import Figures, RandomEngine, Setting, complete_all
from benchmarks.measures.gpu_right import DEFAULT_MODEL
from inference.config import EngineConfig
from inference.engine.assembly import load_engine
from inference.errors import OverloadedError
from inference.protocol.completion import CompletionRequest, Extent

_AT_ONCE = 16
_NUM_MARKS = 4
_NUM_CHARS = (40, 400, 1200, 90, 700)  # of the texts, in turn
_SHIFT = 611


def measure_memory(setting: Setting) -> Figures:
    """`memory_growth_bytes`, of each request to the default model.

    The same requests come again between two marks, so the engine then remembers about the same. Growth counts from the
    second mark on.
    """
    config = EngineConfig(DEFAULT_MODEL, setting.device, setting.dtype, memory_mib=16)
    requests = [_build_request(index) for index in range(setting.sizes.num_requests)]
    marks: list[int] = []
    with closing(load_engine(config)) as engine:
        for _ in range(_NUM_MARKS):
            for start in range(0, len(requests), _AT_ONCE):
                complete_all(engine, requests[start : start + _AT_ONCE])
            gc.collect()
            marks.append(torch.cuda.memory_allocated() if setting.is_cuda else _count_pages(1))
    growth = (marks[-1] - marks[1]) / ((_NUM_MARKS - 2) * len(requests))
    return {"memory_growth_bytes": growth, "memory_most_mib": max(marks) / 2**20}


def _build_request(index: int) -> CompletionRequest:
    text = read_repository()
    start = index * _SHIFT % (len(text) - max(_NUM_CHARS))
    prefix = text[start : start + _NUM_CHARS[index % len(_NUM_CHARS)]]
    return CompletionRequest(prefix, max_tokens=2, extent=Extent.BLOCK, document=f"file:///{index}.py")


def measure_refusal(engine: RandomEngine) -> Figures:
    """`refusal_keeps_engine`: a request without memory is refused, the next one answered. Raises RuntimeError."""
    sizes = engine.setting.sizes
    small = CompletionRequest("import os\nvalue = q", max_tokens=2, extent=Extent.BLOCK)
    long = CompletionRequest(engine.cut_text(sizes.num_long) + "value = q", max_tokens=1, extent=Extent.BLOCK)
    complete_all(engine.engine, [small])
    with _limited_memory(engine.setting):
        try:
            complete_all(engine.engine, [long])
        except OverloadedError:
            [after] = complete_all(engine.engine, [small])
            return {"refusal_keeps_engine": after.stats.num_tokens > 0}
    raise RuntimeError(f"{sizes.num_spare_mib} MiB were enough for {sizes.num_long} tokens")


@contextmanager
def _limited_memory(setting: Setting) -> Iterator[None]:
    """Inside the context, the process has some MiB more than now: by torch on a GPU, by the system elsewhere."""
    spare = setting.sizes.num_spare_mib * 2**20
    if setting.is_cuda:
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties(setting.device).total_memory
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + spare) / total)
        try:
            yield
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
        return
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_count_pages(0) + spare, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def _count_pages(column: int) -> int:
    """Bytes of the process: of its address space (0), or in memory (1)."""
    return int(Path("/proc/self/statm").read_text().split()[column]) * resource.getpagesize()

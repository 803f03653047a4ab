"""Runs one job with genlm-bytes 0.2.0. It runs in its own environment, and no module of midtoken imports it.

    python genlm_bytes.py JOB.json

The job has a `kind` (walk, first, index), its input, and the names of the files that
`benchmarks/baselines/reference_model.py` reads afterwards: `result` (JSON) and, for a walk, `arrays` (npz). It uses one
thread and measures CPU and wall time.

Forms of genlm-bytes:
- `shipped`: the defaults of `load_model_by_name`. As in its own `greedy` and `sample`, it predicts with every member
  that remains after the last byte, and prunes to K afterwards. It loads the weights as they are stored (bfloat16),
  waits 20 ms before every batch and reads the whole text again for every call.
- `tuned`: float32, no waiting, pruned to K before predicting (the paper's appendix D; half the calls), `cache_kv` of
  the prefix that all members of the beam share, and no mass on special tokens that never occur in a text.
- `kept`: `tuned` with `KeptTransformer`, which keeps the keys and values of every member.

The end of the text is genlm-bytes's EOS: `eos_byte_strings` contains the end tokens, and index 257 is their mass. Other
special tokens are spelled as bytes there, so `<` would get the mass of `<|fim_prefix|>`; `tuned` and `kept` mask their
logits. Index 256 is the end of a token; it is always impossible after the whole beam was extended. A row here is
[256 bytes, end] in natural logarithms, normalized over the members of the beam by `logp_next`.
"""

import asyncio
import gc
import json
import re
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from genlm.backend import load_model_by_name
from genlm.backend.llm import AsyncTransformer
from genlm.backend.tokenization import Token
from genlm.bytes import BeamParams, ByteBeamState, LazyTrieState, StatefulTokenizedLM
from genlm.bytes.trie import TokenByteTrie
from kept_transformer import KeptTransformer  # type: ignore[import-not-found]  # it is in the folder of this script

_EOS = 257  # in the rows of genlm-bytes
_PROGRESS_SECONDS = 20

Job = dict[str, Any]
Result = dict[str, Any]


def main() -> None:
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    job: Job = json.loads(Path(sys.argv[1]).read_text())
    if job["kind"] == "index":
        result = _build_index(job)
    else:
        result = asyncio.run({"walk": _walk, "first": _time_first}[job["kind"]](job))
    Path(job["result"]).write_text(json.dumps(result))


def _load(job: Job) -> AsyncTransformer:
    if job["form"] == "shipped":
        return load_model_by_name(job["model"], backend="hf")
    options = {"timeout": 0.0, "hf_opts": {"torch_dtype": torch.float32}}
    if job["form"] == "kept":
        model = KeptTransformer.from_name(job["model"], **options)
    else:
        model = load_model_by_name(job["model"], backend="hf", llm_opts=options)
    absent = torch.tensor(job["absent_ids"], dtype=torch.long)
    head = model.model.get_output_embeddings()
    head.register_forward_hook(lambda _module, _inputs, logits: logits.index_fill(-1, absent, -torch.inf))
    return model


def _build_params(job: Job, model: AsyncTransformer) -> BeamParams:
    ends = [model.byte_vocab[end].byte_string for end in job["end_ids"]]
    return BeamParams(K=job["width"], prune_threshold=job["threshold"], eos_byte_strings=ends)


async def _walk(job: Job) -> Result:
    """Computes the distribution before every byte of a text, until the end of the text or the time limit."""
    model = _load(job)
    text = Path(job["given"]).read_bytes()
    beam = await ByteBeamState.initial(model, _build_params(job, model))
    rows = np.full((len(text), 257), np.nan, np.float32)
    cpu_s, wall_s = np.zeros(len(text)), np.zeros(len(text))  # since the start of the text, after every byte
    num_done, num_kept_ids, shown_at, failure = 0, 1, time.perf_counter(), None
    cpu_start, wall_start = time.process_time(), time.perf_counter()
    for position, byte in enumerate(text):
        if job["form"] != "shipped":
            beam = beam.prune()
        if len(beam) == 0:
            failure = f"the beam is empty before byte {position}"
            break
        rows[position] = _to_row((await beam.logp_next()).ps)
        beam = await (beam.prune() << byte)
        if job["form"] == "kept":
            model.keep_only(member.lm_state.context for member in beam)
        elif job["form"] == "tuned":
            num_kept_ids = _cache_shared_prefix(model, beam, num_kept_ids)
        cpu_s[position], wall_s[position] = time.process_time() - cpu_start, time.perf_counter() - wall_start
        num_done = position + 1
        if time.perf_counter() - shown_at > _PROGRESS_SECONDS:
            print(f"  genlm-bytes {job['form']}, K={job['width']}: {num_done:,} of {len(text):,} bytes", flush=True)
            shown_at = time.perf_counter()
        if wall_s[position] > job["limit_s"]:
            break
    np.savez(job["arrays"], rows=rows[:num_done], cpu_s=cpu_s[:num_done], wall_s=wall_s[:num_done])
    return {"failure": failure}


def _cache_shared_prefix(model: AsyncTransformer, beam: ByteBeamState, num_kept_ids: int) -> int:
    """Caches the members' common prefix if it has grown enough to be worth it. Returns how many ids are cached now."""
    contexts = [member.lm_state.context for member in beam]
    if not contexts:
        return num_kept_ids
    least, greatest = min(contexts), max(contexts)  # the prefix that these two share is shared by all
    num_shared = next((i for i, (a, b) in enumerate(zip(least, greatest, strict=False)) if a != b), len(least))
    if num_shared < num_kept_ids + max(1, (num_shared / len(contexts)) ** 0.5):
        return num_kept_ids
    model.cache_kv(contexts[0][:num_shared])
    return num_shared


def _to_row(log_probs: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return np.append(log_probs[:256], log_probs[_EOS])


async def _time_first(job: Job) -> Result:
    """Measures for each length the milliseconds to the first distribution, with a loaded model and a built index."""
    model = _load(job)
    initial = await ByteBeamState.initial(model, _build_params(job, model))
    text = Path(job["given"]).read_bytes()
    measure = _time_shipped if job["form"] == "shipped" else _time_tuned
    measured: list[Result] = []
    for num_bytes in job["lengths"]:
        if measured and measured[-1]["ms"] is None:  # a longer context takes longer
            measured.append({**measured[-1], "num_bytes": num_bytes})
            continue
        measured.append({"num_bytes": num_bytes, **await measure(job, model, initial, text[:num_bytes])})
        print(f"  genlm-bytes {job['form']}, first distribution after {num_bytes:,} bytes", flush=True)
    return {"measured": measured}


async def _time_shipped(job: Job, model: AsyncTransformer, initial: ByteBeamState, context: bytes) -> Result:
    model.clear_cache()
    cpu_start, wall_start = time.process_time(), time.perf_counter()
    try:
        async with asyncio.timeout(job["limit_s"]):
            beam = await initial.prefill(context)
            await beam.logp_next()
    except TimeoutError:
        return {"num_read": 0, "ms": None, "cpu_ms": None, "kv_there_ms": None, "row": None}
    wall, cpu = time.perf_counter() - wall_start, time.process_time() - cpu_start
    return {"num_read": len(context), "ms": 1e3 * wall, "cpu_ms": 1e3 * cpu, "kv_there_ms": None, "row": None}


async def _time_tuned(job: Job, model: AsyncTransformer, initial: ByteBeamState, context: bytes) -> Result:
    """Starts at the last token boundary before the end of the context, and reads the last token byte by byte.

    A context that is longer than the window is cut to the window.
    """
    trie = initial.states[0].trie
    walls, cpus, there = [], [], []
    for _ in range(job["num_repeats"]):
        _forget(model)
        wall_start, cpu_start = time.perf_counter(), time.process_time()
        ids = model.tokenizer(context.decode(), add_special_tokens=False)["input_ids"]
        ids = ids[-(model.model.config.max_position_embeddings - job["num_spare_ids"]) :]
        stem = [model.tokenizer.bos_token_id, *ids[:-1]]
        await _read(model, stem)
        there_start = time.perf_counter()
        state = LazyTrieState(StatefulTokenizedLM(model, stem), trie, trie.trie.root, 0.0)
        beam = ByteBeamState([await state.materialize()], initial.params)
        beam = await beam.prefill(model.byte_vocab[ids[-1]].byte_string)
        row = _to_row((await beam.prune().logp_next()).ps)
        end = time.perf_counter()
        cpus.append(time.process_time() - cpu_start)
        walls.append(end - wall_start)
        there.append(end - there_start)
    return {
        "num_read": sum(len(model.byte_vocab[token_id]) for token_id in ids),
        "ms": 1e3 * statistics.median(walls),
        "cpu_ms": 1e3 * statistics.median(cpus),
        "kv_there_ms": 1e3 * statistics.median(there),
        "row": row.tolist(),
    }


def _forget(model: AsyncTransformer) -> None:
    model.clear_cache()
    if isinstance(model, KeptTransformer):
        model.keep_only([])


async def _read(model: AsyncTransformer, ids: list[int]) -> None:
    """Computes the keys and values of a context, in the way of the form."""
    if isinstance(model, KeptTransformer):
        await model.next_token_logprobs(ids)
    else:
        model.cache_kv(ids)


def _build_index(job: Job) -> Result:
    """Measures building the index over a vocabulary, and one call that computes the mass of all its prefixes."""
    texts = json.loads(Path(job["given"]).read_text())
    tokens = [Token(token_id, text.encode("latin-1")) for token_id, text in enumerate(texts)]
    weights = torch.softmax(torch.randn(len(tokens), generator=torch.Generator().manual_seed(1)), 0)
    gc.collect()
    before = _read_memory_mb("VmRSS")
    wall_start, cpu_start = time.perf_counter(), time.process_time()
    trie = TokenByteTrie(decode=tokens, device="cpu")
    wall, cpu = time.perf_counter() - wall_start, time.process_time() - cpu_start
    gc.collect()
    memory, peak = _read_memory_mb("VmRSS") - before, _read_memory_mb("VmHWM") - before
    times = []
    for _ in range(job["num_repeats"]):
        start = time.perf_counter()
        trie.weight_sum(weights)
        times.append(time.perf_counter() - start)
    return {
        "build_s": wall,
        "build_cpu_s": cpu,
        "memory_mb": memory,
        "peak_mb": peak,
        "masses_ms": 1e3 * statistics.median(times),
    }


def _read_memory_mb(field: str) -> float:
    [kilobytes] = re.findall(rf"{field}:\s*(\d+) kB", Path("/proc/self/status").read_text())
    return int(kilobytes) / 1024


if __name__ == "__main__":
    main()

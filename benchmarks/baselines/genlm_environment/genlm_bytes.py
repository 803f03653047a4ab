"""Walks over a text with genlm-bytes 0.2.0. It runs in its own environment, and no module of midtoken imports it.

    python genlm_bytes.py JOB.json

The job names the text, and the files that `benchmarks/baselines/reference_model.py` reads afterwards: `result` (JSON)
and `arrays` (npz). It uses one thread and measures CPU time.

Forms of genlm-bytes:
- `tuned`: float32, no waiting, pruned to K before predicting (the paper's appendix D; half the calls), `cache_kv` of
  the prefix that all members of the beam share, and no mass on special tokens that never occur in a text.
- `kept`: `tuned` with `KeptTransformer`, which keeps the keys and values of every member.

The end of the text is genlm-bytes's EOS: `eos_byte_strings` contains the end tokens, and index 257 is their mass. Other
special tokens are spelled as bytes there, so `<` would get the mass of `<|fim_prefix|>`; their logits are masked. Index
256 is the end of a token; it is always impossible after the whole beam was extended. A row here is [256 bytes, end] in
natural logarithms, normalized over the members of the beam by `logp_next`.
"""

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from genlm.backend import load_model_by_name
from genlm.backend.llm import AsyncTransformer
from genlm.bytes import BeamParams, ByteBeamState
from kept_transformer import KeptTransformer  # type: ignore[import-not-found]  # it is in the folder of this script

_EOS = 257  # in the rows of genlm-bytes
_PROGRESS_SECONDS = 20

Job = dict[str, Any]


def main() -> None:
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    job: Job = json.loads(Path(sys.argv[1]).read_text())
    Path(job["result"]).write_text(json.dumps({"failure": asyncio.run(_walk(job))}))


def _load(job: Job) -> AsyncTransformer:
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
    return BeamParams(K=job["width"], prune_threshold=0.0, eos_byte_strings=ends)


async def _walk(job: Job) -> str | None:
    """Computes the distribution before every byte of a text, until the end of the text or the time limit.

    Returns why it ended before that.
    """
    model = _load(job)
    text = Path(job["text"]).read_bytes()
    beam = await ByteBeamState.initial(model, _build_params(job, model))
    rows = np.full((len(text), 257), np.nan, np.float32)
    cpu_s = np.zeros(len(text))  # since the start of the text, after every byte
    num_done, num_kept_ids, shown_at, failure = 0, 1, time.perf_counter(), None
    cpu_start, wall_start = time.process_time(), time.perf_counter()
    for position, byte in enumerate(text):
        beam = beam.prune()
        if len(beam) == 0:
            failure = f"the beam is empty before byte {position}"
            break
        rows[position] = _to_row((await beam.logp_next()).ps)
        beam = await (beam.prune() << byte)
        if job["form"] == "kept":
            model.keep_only(member.lm_state.context for member in beam)
        else:
            num_kept_ids = _cache_shared_prefix(model, beam, num_kept_ids)
        cpu_s[position] = time.process_time() - cpu_start
        num_done = position + 1
        if time.perf_counter() - shown_at > _PROGRESS_SECONDS:
            print(f"  genlm-bytes {job['form']}, K={job['width']}: {num_done:,} of {len(text):,} bytes", flush=True)
            shown_at = time.perf_counter()
        if time.perf_counter() - wall_start > job["limit_s"]:
            break
    np.savez(job["arrays"], rows=rows[:num_done], cpu_s=cpu_s[:num_done])
    return failure


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


if __name__ == "__main__":
    main()

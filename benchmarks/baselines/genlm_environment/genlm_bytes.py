"""Walks over a text with genlm-bytes 0.2.0. It runs in its own environment, and no module of midtoken imports it.

    python genlm_bytes.py JOB.json

The job names the text, and the file `arrays` (npz) that `benchmarks/baselines/reference_model.py` reads afterwards. It
uses one thread and measures CPU time.

genlm-bytes is set up as it is quickest: float32, no waiting, pruned to K before predicting (the paper's appendix D;
half the calls), no mass on special tokens that never occur in a text, and `KeptTransformer`, which keeps the keys and
values of every member of the beam. With its own options, which keep those of one prefix, it read 4.6 bytes a second in
place of 36.

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
from genlm.bytes import BeamParams, ByteBeamState
from kept_transformer import KeptTransformer  # type: ignore[import-not-found]  # it is in the folder of this script

_EOS = 257  # in the rows of genlm-bytes
_PROGRESS_SECONDS = 20

Job = dict[str, Any]


def main() -> None:
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    job: Job = json.loads(Path(sys.argv[1]).read_text())
    asyncio.run(_walk(job))


def _load(job: Job) -> KeptTransformer:
    options = {"timeout": 0.0, "hf_opts": {"torch_dtype": torch.float32}}
    model = KeptTransformer.from_name(job["model"], **options)
    absent = torch.tensor(job["absent_ids"], dtype=torch.long)
    head = model.model.get_output_embeddings()
    head.register_forward_hook(lambda _module, _inputs, logits: logits.index_fill(-1, absent, -torch.inf))
    return model


def _build_params(job: Job, model: KeptTransformer) -> BeamParams:
    ends = [model.byte_vocab[end].byte_string for end in job["end_ids"]]
    return BeamParams(K=job["width"], prune_threshold=0.0, eos_byte_strings=ends)


async def _walk(job: Job) -> None:
    """Computes the distribution before every byte of a text. Raises RuntimeError if the beam has no member left."""
    model = _load(job)
    text = Path(job["text"]).read_bytes()
    beam = await ByteBeamState.initial(model, _build_params(job, model))
    rows = np.full((len(text), 257), np.nan, np.float32)
    cpu_s = np.zeros(len(text))  # since the start of the text, after every byte
    shown_at, cpu_start = time.perf_counter(), time.process_time()
    for position, byte in enumerate(text):
        beam = beam.prune()
        if len(beam) == 0:
            raise RuntimeError(f"the beam is empty before byte {position}")
        rows[position] = _to_row((await beam.logp_next()).ps)
        beam = await (beam.prune() << byte)
        model.keep_only(member.lm_state.context for member in beam)
        cpu_s[position] = time.process_time() - cpu_start
        if time.perf_counter() - shown_at > _PROGRESS_SECONDS:
            print(f"  genlm-bytes, K={job['width']}: {position + 1:,} of {len(text):,} bytes", flush=True)
            shown_at = time.perf_counter()
    np.savez(job["arrays"], rows=rows, cpu_s=cpu_s)


def _to_row(log_probs: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return np.append(log_probs[:256], log_probs[_EOS])


if __name__ == "__main__":
    main()

"""Walks over a text with genlm-bytes 0.2.0. It runs in its own environment, and no module of midtoken imports it.

    python genlm_bytes.py JOB.json

The job has the text, and names the file `arrays` (npz) that `benchmarks/characters.py` reads afterwards. It uses one
thread and measures CPU time.

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
import torch
from genlm.bytes import BeamParams, ByteBeamState
from kept_transformer import KeptTransformer  # type: ignore[import-not-found]  # it is in the folder of this script

_EOS = 257  # in the rows of genlm-bytes


def main() -> None:
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    asyncio.run(_walk(json.loads(Path(sys.argv[1]).read_text())))


def _load(job: dict[str, Any]) -> KeptTransformer:
    options = {"timeout": 0.0, "hf_opts": {"torch_dtype": torch.float32}}
    model = KeptTransformer.from_name(job["model"], **options)
    absent = torch.tensor(job["absent_ids"], dtype=torch.long)
    head = model.model.get_output_embeddings()
    head.register_forward_hook(lambda _module, _inputs, logits: logits.index_fill(-1, absent, -torch.inf))
    return model


async def _walk(job: dict[str, Any]) -> None:
    """Computes the distribution before every byte of a text. Raises RuntimeError if the beam has no member left."""
    model, text = _load(job), job["text"].encode()
    ends = [model.byte_vocab[end].byte_string for end in job["end_ids"]]
    params = BeamParams(K=job["width"], prune_threshold=0.0, eos_byte_strings=ends)
    beam = await ByteBeamState.initial(model, params)
    rows = np.full((len(text), 257), np.nan, np.float32)
    cpu_start = time.process_time()
    for position, byte in enumerate(text):
        beam = beam.prune()
        if len(beam) == 0:
            raise RuntimeError(f"the beam is empty before byte {position}")
        log_probs = (await beam.logp_next()).ps
        rows[position] = np.append(log_probs[:256], log_probs[_EOS])
        beam = await (beam.prune() << byte)
        model.keep_only(member.lm_state.context for member in beam)
    np.savez(job["arrays"], rows=rows, cpu_s=time.process_time() - cpu_start)


if __name__ == "__main__":
    main()

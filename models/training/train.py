"""Trains the bundled model: a tokenizer, then a small decoder, from permissively licensed Python.

    python -m models.training.train --corpus build/corpus --out models/default --tokens 26000000
    torchrun --nproc-per-node 2 -m models.training.train ...      (one process for each core or GPU)

A stopped run continues from its last checkpoint in `--work`. The learning rate is constant for the first three quarters
of `--tokens` and then decreases to zero. The last quarter has longer rows.
"""

import argparse
import math
import os
import pickle
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import torch
import torch.distributed as dist
import transformers
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.nn.functional import cross_entropy
from tqdm import tqdm

from models.training.corpus import SourceFile, iter_held_out, iter_training
from models.training.evaluation import measure_bits_per_byte
from models.training.stream import SPECIAL_TOKENS, TrainingStream, build_encoder

_VOCAB_SIZE = 8192
_SHORT_ROW, _LONG_ROW = 512, 2048
_BATCH_TOKENS = 16_384
_FLAT_SHARE = 0.75
_WARMUP_STEPS = 60
_PEAK_RATE = 3e-3
# Qwen2's pre-tokenizer: contractions, words with one leading character, single digits, punctuation, blanks.
_PRE_TOKENIZER = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(slots=True)
class _Progress:
    step: int
    num_tokens: int
    stream: TrainingStream


def main() -> None:
    options = _parse_options()
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world > 1:
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
        torch.set_num_threads(1)
    device = torch.device("cuda", rank) if torch.cuda.is_available() else torch.device("cpu")
    files = list(iter_training(_package_roots(options.corpus)))
    running_weights = list(accumulate(_weight(file) for file in files))
    tokenizer = _load_or_train_tokenizer(options.work, files, rank)
    torch.manual_seed(options.seed)
    model = transformers.LlamaForCausalLM(_model_config()).to(device)
    optimizers = _build_optimizers(model)
    progress = _Progress(0, 0, TrainingStream(options.seed * 1000 + rank, _SHORT_ROW))
    checkpoint = options.work / f"checkpoint-{rank}.pt"
    if checkpoint.exists():
        progress = _load_checkpoint(checkpoint, model, optimizers)
    loss_of = torch.compile(_sum_loss) if options.compile else _sum_loss
    encode = build_encoder(tokenizer)
    bar = tqdm(total=options.tokens, initial=progress.num_tokens, unit="tok", unit_scale=True, disable=rank > 0)
    average = math.nan
    while progress.num_tokens < options.tokens:
        done = progress.num_tokens / options.tokens
        progress.stream.row_tokens = _SHORT_ROW if done < _FLAT_SHARE else _LONG_ROW
        rate = _PEAK_RATE * min(1.0, (progress.step + 1) / _WARMUP_STEPS, max(1 - done, 0.01) / (1 - _FLAT_SHARE))
        num_rows = _BATCH_TOKENS // progress.stream.row_tokens // world
        rows = torch.tensor(progress.stream.take_rows(num_rows, files, running_weights, encode), device=device)
        loss = 0.0
        for part in torch.split(rows, max(options.micro_tokens // progress.stream.row_tokens, 1)):
            part_loss = loss_of(model, part) / (num_rows * progress.stream.row_tokens)
            torch.autograd.backward(part_loss)
            loss += part_loss.item()
        _step(model, optimizers, rate, world)
        progress.step += 1
        progress.num_tokens += _BATCH_TOKENS
        average = loss if math.isnan(average) else 0.95 * average + 0.05 * loss
        bar.update(_BATCH_TOKENS)
        bar.set_postfix(loss=f"{average:.3f}", step=progress.step)
        if progress.step % options.save_steps == 0:  # counted in steps, so that all processes save after the same step
            _save_checkpoint(checkpoint, model, optimizers, progress)
    _save_checkpoint(checkpoint, model, optimizers, progress)
    if rank == 0:
        _export(model, tokenizer, options.out)
        print(f"held-out bits per byte: {measure_bits_per_byte(model, tokenizer, iter_held_out()):.4f}")


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, default=Path("build/corpus"), help="the folder of installed packages")
    parser.add_argument("--work", type=Path, default=Path("build/training"), help="for checkpoints and the tokenizer")
    parser.add_argument("--out", type=Path, default=Path("models/default"), help="the folder for the trained model")
    parser.add_argument("--tokens", type=int, default=26_000_000, help="how many tokens to train on")
    parser.add_argument("--micro-tokens", type=int, default=4096, help="tokens in one forward pass")
    parser.add_argument("--save-steps", type=int, default=100, help="steps between checkpoints")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--compile", action=argparse.BooleanOptionalAction, default=True, help="use torch.compile (default)"
    )
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    return options


def _package_roots(corpus: Path) -> list[Path]:
    return [corpus, Path(torch.__file__).parent, Path(transformers.__file__).parent]


def _weight(file: SourceFile) -> float:
    """Returns the file's length, times five for the standard library, times 0.3 for files that resemble others."""
    size = len(file.text)
    if file.path.startswith("models/") or "/_generated/" in file.path:
        return 0.3 * size
    return 5.0 * size if file.root == "stdlib" else 1.0 * size


def _load_or_train_tokenizer(work: Path, files: list[SourceFile], rank: int) -> Tokenizer:
    path = work / "tokenizer.json"
    if rank == 0 and not path.exists():
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(_PRE_TOKENIZER), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=_VOCAB_SIZE,
            special_tokens=list(SPECIAL_TOKENS),
            show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        )
        sample = [file.text for index, file in enumerate(files) if file.root == "stdlib" or index % 4 == 0]
        tokenizer.train_from_iterator(sample, trainer)
        tokenizer.save(str(path))
    if dist.is_initialized():
        dist.barrier()
    return Tokenizer.from_file(str(path))


def _model_config() -> transformers.LlamaConfig:
    return transformers.LlamaConfig(
        vocab_size=_VOCAB_SIZE,
        hidden_size=256,
        intermediate_size=704,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=_LONG_ROW,
        rope_parameters={"rope_type": "default", "rope_theta": 50_000.0},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=4,
        attn_implementation="sdpa",
    )


def _build_optimizers(model: torch.nn.Module) -> list[torch.optim.Optimizer]:
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    chosen = {id(p) for p in matrices}
    others = [p for p in model.parameters() if id(p) not in chosen]
    return [
        torch.optim.Muon(matrices, lr=_PEAK_RATE, weight_decay=0.05, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=_PEAK_RATE, betas=(0.9, 0.95), weight_decay=0.01),
    ]


def _sum_loss(model: transformers.LlamaForCausalLM, rows: torch.Tensor) -> torch.Tensor:
    """Returns the sum of the cross entropies of the next tokens. The output head runs in slices to save memory."""
    total = torch.zeros((), device=rows.device)
    with torch.autocast(rows.device.type, torch.bfloat16):
        hidden = model.model(input_ids=rows[:, :-1], use_cache=False).last_hidden_state.flatten(0, 1)
        for part, targets in zip(hidden.chunk(4), rows[:, 1:].flatten().chunk(4), strict=True):
            total = total + cross_entropy(model.lm_head(part).float(), targets, reduction="sum")
    return total


def _step(model: torch.nn.Module, optimizers: list[torch.optim.Optimizer], rate: float, world: int) -> None:
    if world > 1:
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat)
        flat /= world
        means = torch.split(flat, [gradient.numel() for gradient in gradients])
        for gradient, mean in zip(gradients, means, strict=True):
            gradient.copy_(mean.view_as(gradient))
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        optimizer.zero_grad()


def _save_checkpoint(
    path: Path, model: torch.nn.Module, optimizers: list[torch.optim.Optimizer], progress: _Progress
) -> None:
    state = {
        "model": model.state_dict(),
        "optimizers": [o.state_dict() for o in optimizers],
        "progress": pickle.dumps(progress),
    }
    torch.save(state, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)


def _load_checkpoint(path: Path, model: torch.nn.Module, optimizers: list[torch.optim.Optimizer]) -> _Progress:
    state = torch.load(path, map_location="cpu", weights_only=True)
    model.load_state_dict(state["model"])
    for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
        optimizer.load_state_dict(saved)
    progress: _Progress = pickle.loads(state["progress"])
    return progress


def _export(model: transformers.LlamaForCausalLM, tokenizer: Tokenizer, out: Path) -> None:
    """Writes the model in Hugging Face layout, with weights in bfloat16."""
    out.mkdir(parents=True, exist_ok=True)
    state = {name: tensor.to(torch.bfloat16) for name, tensor in model.state_dict().items()}
    copy = transformers.LlamaForCausalLM(_model_config()).to(torch.bfloat16)
    copy.load_state_dict(state)
    copy.save_pretrained(out)
    wrapped = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|endoftext|>",
        eos_token="<|endoftext|>",
        pad_token="<|fim_pad|>",
        model_max_length=_LONG_ROW,
    )
    wrapped.save_pretrained(out)


if __name__ == "__main__":
    main()

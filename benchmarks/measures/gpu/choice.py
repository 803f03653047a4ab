"""The mask and the choice for many sequences: device time of the product's sampler.

Each request has one row of logits and healed bytes, so its next token must begin with them.

- `choice_us_64`: between two events around one call. The device is given a long copy first, so the host is ahead, and
  its time is not measured as long as it does not wait for the device.
- `choice_busy_us_64`: the sum of the times of kernels and copies, without the gaps between them.
- `choice_wall_us_64`: by the host's clock, until the choices are there.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack

import torch

from benchmarks.corpora.random_models import prepare_tokenizer
from benchmarks.measures.gpu.device_profile import profile_action
from benchmarks.measures.gpu.setting import Deadline, Figures, Setting
from benchmarks.measures.report import find_percentile
from inference.healing.covering import Crossing, Rule
from inference.healing.loaded_tokenizer import load_tokenizer
from inference.healing.token_tree import TokenTree
from inference.model.language_model import SampleRequest, Sampling
from inference.model.pytorch.sampler import TorchSampler, build_scorer
from inference.model.pytorch.scoring import TokenRanks
from trie_cache.hot_prefixes import HotPrefixCache

_HEALED = (
    b" No",
    b"re",
    b" s",
    b"_",
    b"i",
    b" val",
    b"com",
    b" ",
    b"=",
    b" ret",
    b"n",
    b" sel",
    b"th",
    b" de",
    b"x",
    b"(",
)
_NUM_WARM_UP = 5
_NUM_COPIES = 4  # some 8 ms on an H200, in which the host may prepare a call


def measure_choice(setting: Setting, deadline: Deadline) -> Figures:
    """`choice_…`."""
    choose = build_choice(setting)
    for _ in range(_NUM_WARM_UP):
        choose()
    ahead_us, wall_us = [], []
    ballast = torch.empty(setting.sizes.num_copy_bytes, dtype=torch.uint8, device=setting.device)
    target = torch.empty_like(ballast)
    for number in range(setting.sizes.num_repeats):
        if deadline.is_over and number:
            break
        setting.synchronize()
        began_at = time.perf_counter()
        choose()
        setting.synchronize()
        wall_us.append(1e6 * (time.perf_counter() - began_at))
        if setting.is_cuda:
            ahead_us.append(_time_ahead(choose, ballast, target))
    return {
        "choice_us_64": find_percentile(ahead_us or wall_us, 50),
        "choice_wall_us_64": find_percentile(wall_us, 50),
        "choice_rows": setting.sizes.num_sequences,
        "choice_vocab_rows": setting.sizes.vocab_rows,
    }


def measure_choice_busy(setting: Setting, _deadline: Deadline) -> Figures:
    """`choice_busy_us_64` and `choice_launches`. Apart from the others, because a profiler may not work."""
    found = profile_action(setting, build_choice(setting))
    return {"choice_busy_us_64": found.busy_us, "choice_launches": found.num_launches}


def build_choice(setting: Setting) -> Callable[[], object]:
    """A call of the sampler for all sequences."""
    with ExitStack() as owner:
        tokenizer = load_tokenizer(prepare_tokenizer(setting.tokenizer, owner), setting.sizes.vocab_rows)
    device = torch.device(setting.device)
    ranks = TokenRanks(tokenizer.vocabulary, tokenizer.trie, device)
    scorer = build_scorer(ranks, torch.bfloat16)
    sampler = TorchSampler(tokenizer.trie, HotPrefixCache(tokenizer.trie), ranks, scorer)
    generator = torch.Generator(device).manual_seed(0)
    shape = setting.sizes.num_sequences, setting.sizes.vocab_rows
    logits = 3 * torch.randn(shape, generator=generator, device=device, dtype=torch.bfloat16)
    requests = [
        SampleRequest(
            TokenTree((17,)),
            (Crossing(None, _HEALED[index % len(_HEALED)], Rule.CROSS),),
            [row],
            Sampling(temperature=0.0, top_p=1.0),
        )
        for index, row in enumerate(sampler.build_rows(logits))
    ]
    return lambda: sampler.choose(requests)


def _time_ahead(choose: Callable[[], object], ballast: torch.Tensor, target: torch.Tensor) -> float:
    """Microseconds on the device between the copy's end and the end of the choice."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    for _ in range(_NUM_COPIES):
        target.copy_(ballast)
    begin.record()
    choose()
    end.record()
    end.synchronize()
    return 1e3 * float(begin.elapsed_time(end))

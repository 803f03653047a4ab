"""transformers' own generation beside the engine: the same shape, weights and context, greedy, one sequence.

transformers has a static cache, for which it compiles the model by itself on a GPU. Neither guesses tokens. The ratio
is of what a further token takes: the time of a long completion without that of a short one. `transformers_cold_ratio_1`
is of the whole long completion, for which both read the context.
"""

import time
from collections.abc import Sequence

import torch

from benchmarks.corpora.random_models import Shape, build_random_model
from benchmarks.corpora.repository_text import cut_text
from benchmarks.measures.gpu.completions import complete_all
from benchmarks.measures.gpu.setting import Deadline, Figures, RandomEngine, Setting, load_random_engine
from benchmarks.measures.report import find_percentile
from inference.healing.heal_point import encode_text
from inference.protocol.completion import CompletionRequest, Extent, FinishReason

_NUM_TEXTS = 5
_NUM_WARM_UP = 2
_FIRST_INDEX = 2000  # other texts than those of the other parts
_ATTENTION = "sdpa"


def measure_transformers(setting: Setting, shape: Shape, deadline: Deadline) -> Figures:
    """`transformers_…`. Raises RuntimeError if no completion of the engine is long enough."""
    loaded = load_random_engine(setting, shape)
    parts = loaded.loaded
    texts = [
        cut_text(parts.tokenizer.encoder, parts.tokenizer.vocabulary, setting.sizes.num_context, _FIRST_INDEX + index)
        + "value = q"
        for index in range(_NUM_WARM_UP + _NUM_TEXTS)
    ]
    try:
        ours = [_complete(loaded, text) for text in texts][_NUM_WARM_UP:]
    finally:
        loaded.close()
    texts_ids = [[*parts.tokenizer.start_ids, *encode_text(parts.tokenizer.encoder, text)] for text in texts]
    del loaded, parts
    theirs = _generate(setting, shape, texts_ids, deadline)
    our_token, our_cold = _find_medians(ours)
    their_token, their_cold = _find_medians(theirs)
    return {
        "transformers_ratio_1": their_token / our_token,
        "transformers_cold_ratio_1": their_cold / our_cold,
        "transformers_token_ms": their_token,
        "transformers_cold_ms": their_cold,
        "transformers_texts": len(theirs),
        "engine_token_ms": our_token,
        "engine_cold_ms": our_cold,
    }


def _complete(loaded: RandomEngine, text: str) -> tuple[float, float] | None:
    """Milliseconds of a further token, and of a long completion; None if it ended early. Neither has read the text."""
    num_tokens = loaded.setting.sizes.num_batch_tokens

    def ask(max_tokens: int, tenant: str) -> float | None:
        request = CompletionRequest(text, max_tokens=max_tokens, extent=Extent.BLOCK, tenant=tenant)
        [completion] = complete_all(loaded.engine, [request])
        return completion.ms if completion.finish_reason is FinishReason.LENGTH else None

    short, long = ask(1, "short"), ask(num_tokens, "long")
    return None if short is None or long is None else ((long - short) / (num_tokens - 1), long)


def _generate(
    setting: Setting, shape: Shape, texts_ids: Sequence[list[int]], deadline: Deadline
) -> list[tuple[float, float]]:
    """The same of transformers. The long completion comes first: the short one then uses its cache."""
    num_tokens = setting.sizes.num_batch_tokens
    model = build_random_model(shape, torch.device(setting.device), getattr(torch, setting.dtype), _ATTENTION)
    num_ids = min(map(len, texts_ids))  # all of one length, so that nothing is compiled again
    found: list[tuple[float, float]] = []
    for number, ids in enumerate(texts_ids):
        if deadline.is_over and number > _NUM_WARM_UP:
            break
        inputs = torch.tensor([ids[-num_ids:]], device=setting.device)

        def generate(num_new: int, inputs: torch.Tensor = inputs) -> float:
            setting.synchronize()
            began_at = time.perf_counter()
            output = model.generate(
                inputs, attention_mask=torch.ones_like(inputs), max_new_tokens=num_new, min_new_tokens=num_new,
                do_sample=False, cache_implementation="static", pad_token_id=0,
            )  # fmt: skip
            setting.synchronize()
            assert output.shape[1] == num_ids + num_new, "no token ends the text"
            return 1e3 * (time.perf_counter() - began_at)

        long, short = generate(num_tokens), generate(1)
        if number >= _NUM_WARM_UP:
            found.append(((long - short) / (num_tokens - 1), long))
    return found


def _find_medians(times: Sequence[tuple[float, float] | None]) -> tuple[float, float]:
    found = [each for each in times if each is not None]
    if not found:
        raise RuntimeError("no completion was long enough")
    medians = [find_percentile(column, 50) or 0.0 for column in zip(*found, strict=True)]
    return medians[0], medians[1]

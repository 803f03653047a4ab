"""Whether the device chooses the tokens that the CPU chooses in float32, for the default model.

1. The reference is a pass of the model on the CPU in float32 for each step. All members of the covering are scored, one
   by one. So the best path and token are known, and how far the second best is behind them (the gap).
2. The device makes the same steps through `LanguageModel`, several sequences in one pass: the context, the tree with
   the choice among its crossings, then token for token. It keeps what the reference chose, so each step is compared by
   itself.
3. A choice that differs is wrong if the gap is larger than what rounding may move. Others are counted apart.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.measures.gpu_engine import Figures, Setting, cut_text
from inference.config import EngineConfig
from inference.engine.prompt import PromptBuilder
from inference.healing.covering import Crossing, Rule, find_crossing_interval
from inference.healing.token_tree import TokenTree
from inference.model.language_model import LanguageModel, LoadedModel, Part, SampleRequest, Sampling
from inference.model.loader import load_model
from inference.model.pytorch.loader import load_torch_model
from inference.model.pytorch.runner import TorchModel
from inference.protocol.completion import CompletionRequest

DEFAULT_MODEL = Path("models/default")
TOLERANCES = {"float32": 0.01, "bfloat16": 0.15}  # nats between the two best
_CONTEXTS = (40, 200, 500, 900)
_PACKED = 8
_NUM_TOKENS = 10  # of each completion
_CUT_CHARS = 3  # of the last line, so that most texts end inside a token
_NUM_THREADS = 4


@dataclass(frozen=True, slots=True)
class RightStep:
    """A step of the reference."""

    tree: TokenTree
    crossings: tuple[Crossing, ...]
    node: int | None  # of the best choice
    token_id: int
    gap: float  # in nats


def measure_right(setting: Setting) -> Figures:
    """`right_…` for each type of numbers."""
    config = EngineConfig(DEFAULT_MODEL, device="cpu", dtype="float32", num_threads=_NUM_THREADS)
    reference = load_torch_model(config)
    texts = _list_texts(reference, setting.sizes.num_right_prompts)
    walks = [walk_reference(reference, text, _NUM_TOKENS) for text in texts]
    figures: Figures = {"right_prompts": len(walks), "right_steps": sum(map(len, walks))}
    for dtype, tolerance in TOLERANCES.items():
        subject = load_model(EngineConfig(DEFAULT_MODEL, setting.device, dtype, num_threads=1))
        gaps = find_differing_gaps(subject.model, walks)
        figures[f"right_wrong_{dtype}"] = sum(gap > tolerance for gap in gaps)
        figures[f"right_close_{dtype}"] = sum(gap <= tolerance for gap in gaps)
        figures[f"right_largest_gap_{dtype}"] = max(gaps, default=0.0)
    return figures


def _list_texts(loaded: LoadedModel[TorchModel], num_texts: int) -> list[str]:
    lengths = itertools.islice(itertools.cycle(_CONTEXTS), num_texts)
    cuts = (cut_text(loaded.tokenizer, length, index) for index, length in enumerate(lengths))
    return [cut.rstrip()[:-_CUT_CHARS] for cut in cuts]


def walk_reference(loaded: LoadedModel[TorchModel], text: str, num_tokens: int) -> list[RightStep]:
    """The steps of a greedy completion, each scored member by member."""
    prompts = PromptBuilder(loaded.tokenizer)
    prompt = prompts.build(CompletionRequest(text), loaded.model.runner.max_tokens - num_tokens)
    cache = loaded.model.runner.new_cache(len(prompt.context_ids) + num_tokens)
    tree, crossings = prompt.covering.tree.with_chain(prompt.context_ids), prompt.covering.crossings
    steps: list[RightStep] = []
    while len(steps) < num_tokens:
        logits = loaded.model.runner.forward([Part(cache, tree)])
        step = _choose_exactly(loaded, tree, crossings, logits)
        cache.keep(tree, step.node)
        steps.append(step)
        if step.token_id in loaded.tokenizer.vocabulary.special_ids:
            break
        tree, crossings = TokenTree((step.token_id,)), (Crossing(None, b"", Rule.EXTEND),)
    return steps


def _choose_exactly(
    loaded: LoadedModel[TorchModel], tree: TokenTree, crossings: Sequence[Crossing], logits: torch.Tensor
) -> RightStep:
    """The best path and token among all members. `logits`: [num_nodes, vocab_size] float32, the chain's end first."""
    vocabulary, trie = loaded.tokenizer.vocabulary, loaded.tokenizer.trie
    is_token = torch.tensor([bool(data) for data in vocabulary.token_bytes])
    is_token[sorted(vocabulary.special_ids)] = True
    rows = logits.double().masked_fill(~is_token, -torch.inf).log_softmax(dim=-1)
    ranks = torch.tensor(trie.rank)
    scores = []
    for crossing in crossings:
        path = tree.find_path(crossing.node)
        parents = [None, *path[:-1]]
        log_prob = sum(
            rows[0 if parent is None else parent + 1, tree.branch_ids[branch]].item()
            for parent, branch in zip(parents, path, strict=False)
        )
        row = rows[0 if crossing.node is None else crossing.node + 1]
        if crossing.remaining_bytes:
            interval = find_crossing_interval(trie, crossing.remaining_bytes)
            row = row.masked_fill((ranks < interval.lo) | (ranks >= interval.hi), -torch.inf)
        scores.append(row + log_prob)
    best, second = torch.stack(scores).flatten().topk(2)[0].tolist()
    at, token_id = divmod(int(torch.stack(scores).flatten().argmax()), rows.shape[1])
    return RightStep(tree, tuple(crossings), crossings[at].node, token_id, best - second)


def find_differing_gaps(model: LanguageModel, walks: Sequence[list[RightStep]]) -> list[float]:
    """The gaps of the steps in which the model chooses something else."""
    gaps: list[float] = []
    for begin in range(0, len(walks), _PACKED):
        own = walks[begin : begin + _PACKED]
        caches = [model.new_cache(len(steps[0].tree.chain_ids) + len(steps)) for steps in own]
        for number in range(max(map(len, own))):
            going_on = [(cache, steps[number]) for cache, steps in zip(caches, own, strict=True) if number < len(steps)]
            all_rows = model.forward([Part(cache, step.tree) for cache, step in going_on])
            results = model.choose(
                [
                    SampleRequest(step.tree, step.crossings, rows, Sampling(temperature=0.0, top_p=1.0))
                    for (_, step), rows in zip(going_on, all_rows, strict=True)
                ]
            )
            for (cache, step), result in zip(going_on, results, strict=True):
                [choice] = result.choices
                if (choice.crossing.node, choice.token_id) != (step.node, step.token_id):
                    gaps.append(step.gap)
                cache.keep(step.tree, step.node)
    return gaps

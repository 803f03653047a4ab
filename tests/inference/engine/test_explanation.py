import math

import numpy as np
import pytest
import torch

from inference.engine.explanation import build_explanation
from inference.engine.prompt import Prompt
from inference.healing.covering import Crossing
from inference.healing.heal_point import encode_text
from inference.healing.token_tree import TokenTree
from inference.model.language_model import Choice, CrossingScores, SampleRequest, SampleResult, Sampling
from inference.protocol.completion import CompletionRequest, Explanation, Healing
from tests.support.samplers import build_rows, build_sampler
from tests.support.toys import KINDS, ToyTokenizer, build_prompts, toy_tokenizer

_PREFIX = "def walk(node):\n    return node.nex"

kinds = pytest.mark.parametrize("kind", KINDS)


def _choose(toy: ToyTokenizer, tree: TokenTree, crossings: tuple[Crossing, ...], logits: torch.Tensor) -> SampleResult:
    sampler = build_sampler("numpy", toy)
    request = SampleRequest(tree, crossings, build_rows(sampler, logits), Sampling(0.0, 1.0), wants_scores=True)
    return sampler.choose([request])[0]


def _explain(kind: str, prefix: str = _PREFIX, healing: Healing = Healing.EXACT) -> tuple[Prompt, Explanation]:
    toy = toy_tokenizer(kind)
    prompts = build_prompts(toy)
    prompt = prompts.build(CompletionRequest(prefix, healing=healing), 256)
    tree = prompt.tree
    logits = torch.randn(1 + len(tree.branch_ids), toy.num_rows, generator=torch.Generator().manual_seed(1))
    result = _choose(toy, tree, prompt.covering.crossings, logits)
    return prompt, build_explanation(prompts.tokenizer, prompt, result)


@kinds
def test_kept_and_chosen_tokens_spell_the_text(kind: str) -> None:
    prompt, explanation = _explain(kind)

    assert (_PREFIX).endswith("".join(explanation.kept_tail) + explanation.healed_bytes)
    assert "".join(explanation.unhealed_tokens) == explanation.healed_bytes
    assert "".join(explanation.chosen_tokens).encode().startswith(prompt.healed)
    assert len("".join(explanation.chosen_tokens).encode()) > len(prompt.healed)


@kinds
def test_the_unhealed_tokens_are_those_of_the_text_after_the_kept_ones(kind: str) -> None:
    """Even where the healed bytes begin inside a word."""
    toy = toy_tokenizer(kind)
    for end in range(4, len(_PREFIX) + 1):
        prompt, explanation = _explain(kind, _PREFIX[:end])

        unhealed = encode_text(toy.encoder, _PREFIX[:end])[len(prompt.kept_ids) :]

        assert explanation.unhealed_tokens == tuple(toy.join([token_id]).decode() for token_id in unhealed)


@kinds
def test_the_choice_is_the_best_of_all_nodes(kind: str) -> None:
    _, explanation = _explain(kind)

    weighed = [node for node in explanation.nodes if node.best_log_prob is not None]
    best = max(weighed, key=lambda node: node.best_log_prob or -math.inf)
    assert explanation.chosen_tokens[-1] == best.best_token


@kinds
def test_the_masses_are_shares_of_one_whole(kind: str) -> None:
    _, explanation = _explain(kind)

    masses = [math.exp(node.log_mass) for node in explanation.nodes if node.log_mass is not None]
    assert 0 < sum(masses) <= 1
    for node in explanation.nodes:
        assert (node.log_mass is None) == (node.best_token is None) == (node.best_log_prob is None)


@kinds
def test_a_node_covers_what_its_parent_covers_and_its_own_token(kind: str) -> None:
    _, explanation = _explain(kind)

    root, *others = explanation.nodes
    assert (root.parent, root.token, root.num_covered_bytes) == (None, "", 0)
    for node in others:
        assert node.parent is not None
        covered = explanation.nodes[node.parent].num_covered_bytes
        assert node.num_covered_bytes == covered + len(node.token.encode())


def test_the_dummy_prefix_is_not_shown() -> None:
    prompt, explanation = _explain("llama2", "")

    assert prompt.healed == b" "
    assert explanation.healed_bytes == ""


def test_an_incomplete_code_point_is_escaped() -> None:
    _, explanation = _explain("qwen", "x = '😀", Healing.SINGLE)

    assert explanation.healed_bytes.startswith("\\x")
    assert explanation.unhealed_tokens == (explanation.healed_bytes,)


def test_special_tokens_are_shown_by_name() -> None:
    toy = toy_tokenizer("qwen")
    prompts = build_prompts(toy)
    prompt = prompts.build(CompletionRequest("x", healing=Healing.NONE), 256)
    tree = prompt.tree
    logits = torch.zeros(1, toy.num_rows)
    logits[0, toy.vocabulary.special_tokens["<|endoftext|>"]] = 9.0
    result = _choose(toy, tree, prompt.covering.crossings, logits)

    explanation = build_explanation(prompts.tokenizer, prompt, result)

    assert explanation.chosen_tokens == ("<|endoftext|>",)


@kinds
def test_each_node_shows_the_best_token_of_its_own_crossing(kind: str) -> None:
    toy = toy_tokenizer(kind)
    prompts = build_prompts(toy)
    prompt = prompts.build(CompletionRequest(_PREFIX), 256)
    crossings = prompt.covering.crossings
    first_text_id = next(token_id for token_id, token in enumerate(toy.vocabulary.token_bytes) if token.isalpha())
    ids = np.arange(first_text_id, first_text_id + len(crossings))
    log_probs = -1.0 - np.arange(len(crossings))
    scores = CrossingScores(log_probs + 0.5, ids, log_probs)
    result = SampleResult((Choice(crossings[0], int(ids[0])),), scores=scores)

    explanation = build_explanation(prompts.tokenizer, prompt, result)

    assert len(crossings) > 1
    for crossing, token_id, log_prob in zip(crossings, ids, log_probs, strict=True):
        node = explanation.nodes[0 if crossing.node is None else crossing.node + 1]
        assert node.best_token == toy.vocabulary.token_bytes[token_id].decode(errors="backslashreplace")
        assert (node.best_log_prob, node.log_mass) == (log_prob, log_prob + 0.5)

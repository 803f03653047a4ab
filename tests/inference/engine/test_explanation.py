import math
import re

import numpy as np
import pytest
import torch

from inference.engine.explanation import build_explanation
from inference.engine.prompt import Prompt
from inference.healing.heal_point import encode_text
from inference.model.language_model import Choice, CrossingScores, SampleRequest, SampleResult, Sampling
from inference.protocol.completion import CompletionRequest, Explanation, Healing
from tests.support.samplers import build_rows, build_sampler
from tests.support.toys import KINDS, build_prompts, toy_tokenizer

_PREFIX = "def walk(node):\n    return node.nex"

kinds = pytest.mark.parametrize("kind", KINDS)


def _explain(
    kind: str, prefix: str = _PREFIX, healing: Healing = Healing.EXACT, likely: str | None = None
) -> tuple[Prompt, Explanation]:
    """A prompt and the explanation of a choice by random logits. `likely`: a special token that is chosen for sure."""
    toy = toy_tokenizer(kind)
    prompts = build_prompts(toy)
    prompt = prompts.build(CompletionRequest(prefix, healing=healing), 256)
    tree = prompt.tree
    logits = torch.randn(1 + len(tree.branch_ids), toy.num_rows, generator=torch.Generator().manual_seed(1))
    if likely is not None:
        logits[:, toy.vocabulary.special_tokens[likely]] = 99.0
    sampler = build_sampler("numpy", toy)
    rows, sampling = build_rows(sampler, logits), Sampling(0.0, 1.0)
    [result] = sampler.choose([SampleRequest(tree, prompt.covering.crossings, rows, sampling, wants_scores=True)])
    return prompt, build_explanation(prompts.tokenizer, prompt, result)


def _unescape(*shown: str) -> bytes:
    """The bytes of texts in which bytes that are not UTF-8 are escaped as \\xNN."""
    return re.sub(rb"\\x([0-9a-f]{2})", lambda found: bytes([int(found[1], 16)]), "".join(shown).encode())


@kinds
@pytest.mark.parametrize("healing", Healing)
@pytest.mark.parametrize("prefix", ["", "é", "x = '😀", _PREFIX])
def test_the_tokens_spell_the_text_whatever_was_healed(kind: str, healing: Healing, prefix: str) -> None:
    """The dummy prefix is not shown: it was not typed."""
    prompt, explanation = _explain(kind, prefix, healing)

    healed = prefix.encode()[len(prefix.encode()) - prompt.num_healed_bytes :]
    assert _unescape(explanation.healed_bytes) == healed
    assert _unescape(*explanation.unhealed_tokens).endswith(healed)
    assert prefix.encode().endswith(_unescape(*explanation.kept_tail).lstrip() + healed)
    assert len(explanation.kept_tail) == min(len(prompt.kept_ids), 8)
    chosen = _unescape(*explanation.chosen_tokens)
    assert chosen.startswith(prompt.healed) or (healing is Healing.GREEDY and prompt.healed.startswith(chosen))


@kinds
def test_the_unhealed_tokens_are_those_of_the_text_after_the_kept_ones(kind: str) -> None:
    """Even where the healed bytes begin inside a word."""
    toy = toy_tokenizer(kind)
    for end in range(4, len(_PREFIX) + 1):
        prompt, explanation = _explain(kind, _PREFIX[:end])

        unhealed = encode_text(toy.encoder, _PREFIX[:end])[len(prompt.kept_ids) :]

        assert explanation.unhealed_tokens == tuple(toy.join([token_id]).decode() for token_id in unhealed)


@kinds
@pytest.mark.parametrize("healing", Healing)
def test_the_nodes_are_the_tree_with_shares_of_one_whole_and_the_choice_is_the_best(
    kind: str, healing: Healing
) -> None:
    prompt, explanation = _explain(kind, healing=healing)

    nodes = explanation.nodes
    assert len(nodes) == 1 + len(prompt.tree.branch_ids)
    assert (nodes[0].parent, nodes[0].token, nodes[0].num_covered_bytes) == (None, "", 0)
    for node in nodes[1:]:
        assert node.parent is not None
        assert node.num_covered_bytes == nodes[node.parent].num_covered_bytes + len(node.token.encode())
    for node in nodes:
        assert (node.log_mass is None) == (node.best_token is None) == (node.best_log_prob is None)
    assert 0 < sum(math.exp(node.log_mass) for node in nodes if node.log_mass is not None) < 1.001
    best = max(nodes, key=lambda node: -math.inf if node.best_log_prob is None else node.best_log_prob)
    assert explanation.chosen_tokens[-1] == best.best_token


def test_special_tokens_are_shown_by_name() -> None:
    _, explanation = _explain("qwen", "x", Healing.NONE, likely="<|endoftext|>")

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

"""What an engine must answer, in the naive form: each string of the covering is run through the model alone."""

import codecs
import math
from collections.abc import Iterator
from pathlib import Path

import torch

from inference.protocol.completion import CompletionRequest
from tests.support.decoder_folders import DecoderOracle
from tests.support.samplers import find_log_probs, may_follow
from tests.support.toys import build_prompts, toy_tokenizer


class EngineOracle:
    """The best string of the covering, and what transformers finds most likely after it."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._toy, self._model = toy_tokenizer(kind), DecoderOracle(folder)

    def iter_texts(self, request: CompletionRequest) -> Iterator[tuple[str, float]]:
        """The text up to the end of each token, with the share of these tokens among all strings of the covering."""
        prompt = build_prompts(self._toy).build(request, 1024)
        tree, members = prompt.covering.tree, dict[tuple[int, ...], float]()
        for crossing in prompt.covering.crossings:
            path = tuple(tree.branch_ids[branch] for branch in tree.find_path(crossing.node))
            rows = [self._find_log_probs((*prompt.context_ids, *path[:at])) for at in range(len(path) + 1)]
            before = math.fsum(row[token] for row, token in zip(rows, path, strict=False))
            members |= {
                (*path, token): before + log_prob
                for token, log_prob in enumerate(rows[-1])
                if may_follow(self._toy, token, crossing)
            }
        ids = max(members, key=lambda member: members[member])
        log_prob = members[ids] - math.log(math.fsum(map(math.exp, members.values())))
        decoder, text, data = codecs.getincrementaldecoder("utf-8")("replace"), "", self._toy.join(ids)
        data = data[len(prompt.healed) :]
        for _ in range(request.max_tokens):
            if ids[-1] in self._toy.vocabulary.special_ids:
                return
            text += decoder.decode(data)
            yield text, log_prob
            row = self._find_log_probs((*prompt.context_ids, *ids))
            ids = (*ids, max(range(len(row)), key=lambda token: row[token]))
            log_prob, data = log_prob + row[ids[-1]], self._toy.join(ids[-1:])

    def _find_log_probs(self, ids: tuple[int, ...]) -> list[float]:
        return find_log_probs(self._toy, torch.from_numpy(self._model.forward(ids))).tolist()

"""Runs a model as the character-level model does, and records what it answers after which tokens."""

from collections.abc import Sequence
from random import Random

import numpy as np
import torch

from benchmarks.measures.families.packed_passes import Answer
from inference.characters.model_reader import ModelReader
from inference.characters.token_string import TokenString
from inference.model.language_model import LoadedModel
from inference.model.pytorch.row_store import TorchRowStore
from inference.model.pytorch.runner import TorchModel

_NUM_ROUNDS = 6
_NUM_READ = 4  # strings in each round
_MAX_ROWS = 4096


def read_strings(loaded: LoadedModel[TorchModel], text_ids: Sequence[int], num_tokens: int) -> list[Answer]:
    """The answers after token strings that grow from a long text and from a short one.

    Strings are dropped on the way, and their rows are used for others. `num_tokens`: the most tokens of a string.
    """
    random = Random(0)
    end_ids = sorted(loaded.vocabulary.end_ids)
    reader = ModelReader(TorchRowStore(loaded.model.runner), loaded.trie, end_ids, num_tokens, _MAX_ROWS)
    columns = torch.tensor([*loaded.trie.order.tolist(), *end_ids])
    lengths = (num_tokens - 2 * _NUM_ROUNDS, 3)
    alive = [TokenString(tuple(random.choices(text_ids, k=length))) for length in lengths]
    answers = []
    for _ in range(_NUM_ROUNDS):
        strings = {string.extend(random.choices(text_ids, k=random.randint(1, 2))) for string in alive}
        read = [*alive, *strings][:_NUM_READ]
        reader.read(read)
        answers += [_record(string, columns) for string in read]
        alive = [*alive[:2], *random.sample(sorted(strings, key=_spell), min(len(strings), 2))]
    return answers


def _record(string: TokenString, columns: torch.Tensor) -> Answer:
    assert string.log_probs is not None
    log_probs = np.append(np.asarray(string.log_probs, np.float32), np.float32(string.log_end))
    return Answer("token strings", _spell(string), torch.from_numpy(log_probs), columns)


def _spell(string: TokenString) -> tuple[int, ...]:
    """All tokens of the string."""
    before = () if string.parent is None else _spell(string.parent)
    return before + string.token_ids

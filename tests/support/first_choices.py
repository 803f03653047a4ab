"""The first tokens of a completion, by brute force over whole distributions."""

import numpy as np

from inference.healing.covering import build_covering
from inference.healing.heal_point import find_heal_point
from inference.healing.loaded_tokenizer import LoadedTokenizer
from inference.model.sampler import NumpyRow, NumpyTokens, SampleRequest, Sampling, choose
from tests.support.fake_llama_server import FakeLlamaServer


def find_first_tokens(server: FakeLlamaServer, tokenizer: LoadedTokenizer, text: str) -> list[int]:
    """All tokens up to the first choice."""
    point = find_heal_point(tokenizer.encoder, text)
    covering = build_covering(tokenizer.encoder, tokenizer.trie, point)
    context = [*tokenizer.start_ids, *point.kept_ids, *covering.common_ids]
    tree = covering.tree.with_chain(tuple(context))
    paths = [tree.find_path(node) for node in (None, *range(len(tree.branch_ids)))]
    told = [server.find_log_probs([*context, *(tree.branch_ids[each] for each in path)]) for path in paths]
    tokens = NumpyTokens(tokenizer.vocabulary, tokenizer.trie)
    rows = [NumpyRow(each.astype(np.float32), tokens) for each in told]
    request = SampleRequest(tree, covering.crossings, rows, Sampling(0.0, 1.0))
    (best,) = choose(request).choices
    return [*context, *(tree.branch_ids[each] for each in tree.find_path(best.crossing.node)), best.token_id]

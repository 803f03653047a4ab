"""The runner with models that have a recurrent state, as the tests of the runner need it."""

from pathlib import Path

from inference.model.gguf.llama import Llama
from inference.model.gguf.model import GgufModel
from inference.model.gguf.recurrent_cache import StatePool
from inference.model.sampler import NumpyTokens
from trie_cache.trie import Trie
from trie_cache.vocabulary import Vocabulary

_NUM_CELLS = 4096


def load_states(folder: Path, num_states: int = 24) -> GgufModel:
    """The model in a folder of `write_state_model`, with so many states. Each row of the head is a token."""
    llama = Llama(folder / "model.gguf", "cpu")
    llama.open_context(_NUM_CELLS, 1, num_states)
    vocabulary = Vocabulary.from_tokens({row: row.to_bytes(2) for row in range(llama.vocab_size)}, {})
    pool = StatePool(llama, _NUM_CELLS, 4, num_states=num_states)
    return GgufModel(pool, NumpyTokens(vocabulary, Trie.build(vocabulary)))

"""A folder with a GGUF file to a model on llama.cpp; or why it would not run rightly there."""

import math
from pathlib import Path

import llama_cpp

from inference.config import AUTO_DTYPE, EngineConfig
from inference.errors import ModelError
from inference.healing.loaded_tokenizer import LoadedTokenizer, check_ids, load_tokenizer
from inference.healing.tokenizer_file import read_tokenizer_file
from inference.model.gguf.kv_cache import CellPool
from inference.model.gguf.llama import NUM_SEQUENCE_IDS, Llama
from inference.model.gguf.model import GgufModel
from inference.model.gguf.recurrent_cache import MIN_STATES, StatePool
from inference.model.language_model import LoadedModel
from inference.model.sampler import NumpyTokens
from inference.model.sizes import choose_auto_tokens, choose_threads, choose_window, describe_choice, find_room
from inference.model.tree_check import check_tree_difference, measure_tree_difference
from inference.model_folder import find_gguf_file

_DTYPES = (AUTO_DTYPE, "float32")  # in which llama.cpp computes, whatever the file has
_CELL_STEP = 256  # llama.cpp rounds up to it
_MAX_CELLS = 2**20  # some thousand times as many end the process
_FLOATS = ("F32", "F16")  # in the names of precisions, BF16 too: of those, several rows take hardly longer than one
_CHEAP_ROW = 0.1
# Room in contexts of full length: for those in use, and for those remembered at least and at most. llama.cpp takes the
# memory for all of it at once. What all of them have, each row looks at: with 20,000 tokens it takes three times as
# long as with 400.
_IN_USE, _LEAST_REMEMBERED, _MOST_REMEMBERED = 4, 2, 8


def load_gguf_model(config: EngineConfig) -> LoadedModel[GgufModel]:
    """The model in `config.model_dir`. Raises ModelError, with the reason, if it cannot be run rightly."""
    path = find_gguf_file(config.model_dir)
    try:
        return _load(config, path)
    except ModelError as error:
        raise ModelError(f"cannot load {path.name}: {error}") from error


def _open(config: EngineConfig, path: Path) -> tuple[Llama, LoadedTokenizer]:
    llama = Llama(path, config.device)
    if llama_cpp.llama_model_has_encoder(llama.model):
        raise ModelError("it has an encoder, and writes only about the text that the encoder has read")
    tokenizer = load_tokenizer(config.model_dir, llama.vocab_size)
    _check_tokens(llama, config, tokenizer)
    return llama, tokenizer


def _load(config: EngineConfig, path: Path) -> LoadedModel[GgufModel]:
    if config.dtype not in _DTYPES:
        raise ModelError(f"a GGUF file has its own precision, which cannot be {config.dtype} (--dtype)")
    llama, tokenizer = _open(config, path)
    num_threads = choose_threads(config.num_threads, llama.num_weights)
    cell_nbytes, state_nbytes = llama.measure_memory()
    num_states = _count_states(config, state_nbytes) if llama.has_state else 0
    is_on_gpu = config.device != "cpu" and llama_cpp.llama_supports_gpu_offload()
    auto_tokens = choose_auto_tokens(llama.num_weights, is_on_gpu)
    window = choose_window(config, llama.max_tokens, cell_nbytes, auto_tokens)
    wanted = config.memory_mib * 2**20 // cell_nbytes
    remembered = min(max(wanted, _LEAST_REMEMBERED * window), _MOST_REMEMBERED * window)
    in_use, remembered = (min(room, config.cache_tokens, _MAX_CELLS) for room in (_IN_USE * window, remembered))
    num_cells, num_bytes = -(-(in_use + remembered) // _CELL_STEP) * _CELL_STEP, config.memory_mib * 2**20
    cell_nbytes = max(cell_nbytes, num_bytes // remembered)
    llama.open_context(num_cells, num_threads, num_states or NUM_SEQUENCE_IDS)
    if num_states:
        pool: CellPool = StatePool(llama, num_cells, cell_nbytes, num_bytes, num_states, state_nbytes)
    else:
        pool = CellPool(llama, num_cells, cell_nbytes, num_bytes)
    has_cheap_rows = not num_states and (is_on_gpu or any(name in llama.dtype for name in _FLOATS))
    tokens = NumpyTokens(tokenizer.vocabulary, tokenizer.trie)
    model = GgufModel(pool, tokens, _CHEAP_ROW if has_cheap_rows else math.inf)
    check_tree_difference(measure_tree_difference(model), "llama.cpp")
    runs_as = describe_choice(llama.dtype, num_threads, "llama.cpp", llama.num_weights)
    return LoadedModel(model, tokenizer, runs_as, cache_tokens=in_use, context_tokens=window)


def _count_states(config: EngineConfig, state_nbytes: int) -> int:
    """As many as the memory of the settings has room for, within bounds. Raises ModelError if there is too little."""
    needed, room = MIN_STATES * state_nbytes, find_room(1)
    if needed > room:
        raise ModelError(
            f"this machine has no memory for {MIN_STATES} copies of its recurrent state: they take "
            f"{needed >> 10:,} KiB, and it has room for {room >> 10:,}"
        )
    return min(max(config.memory_mib * 2**20 // state_nbytes, MIN_STATES), NUM_SEQUENCE_IDS)


def _check_tokens(llama: Llama, config: EngineConfig, tokenizer: LoadedTokenizer) -> None:
    """Raises ModelError if llama.cpp makes other tokens of a text."""
    library = read_tokenizer_file(config.model_dir).tokenizer
    for text, ids in tokenizer.sample:
        check_ids(library, ids, tuple(llama.encode(text)), "llama.cpp")

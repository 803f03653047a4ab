"""A folder with a GGUF file to a model on llama.cpp; or why it would not run rightly there."""

import math
import platform
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import llama_cpp

from inference.config import AUTO_DTYPE, EngineConfig
from inference.errors import ModelError
from inference.healing.loaded_tokenizer import LoadedTokenizer, check_ids, load_tokenizer
from inference.healing.token_tree import TokenTree
from inference.healing.tokenizer_file import read_tokenizer_file
from inference.model.gguf.kv_cache import CellPool
from inference.model.gguf.llama import NUM_SEQUENCE_IDS, Llama
from inference.model.gguf.model import GgufModel
from inference.model.gguf.recurrent_cache import MIN_STATES, StatePool
from inference.model.language_model import LoadedModel, SequenceInput
from inference.model.measurements import (
    MAX_SMALL,
    Fit,
    Measured,
    count_cores,
    identify_files,
    is_busy,
    open_measurements,
)
from inference.model.numpy_sampler import NumpySampler
from inference.model.tree_check import check_tree_difference, measure_tree_difference
from inference.model.window import MAX_AUTO_TOKENS, choose_window, find_room, measure_reading
from inference.model_folder import find_gguf_file

_DTYPES = (AUTO_DTYPE, "float32")  # in which llama.cpp computes, whatever the file has
_CELL_STEP = 256  # llama.cpp rounds up to it
_MAX_CELLS = 2**20  # some thousand times as many end the process
_NUM_TRIAL_ROWS, _NUM_TRIALS = 4, 6
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
    fit = _choose_fit(llama, config.num_threads)
    sampler = NumpySampler(tokenizer.vocabulary, tokenizer.trie)
    files = identify_files(path for path in config.model_dir.iterdir() if path.is_file())
    recall = open_measurements(config.graph_dir)
    sizes = recall(f"memory {config.device} {files}", llama.measure_memory)
    cell_nbytes = int(sizes["token"])
    num_states = _count_states(config, int(sizes["state"])) if llama.has_state else 0
    open_pool = partial(_open_pool, llama, fit, num_states, int(sizes["state"]))
    machine = f"{fit.num_threads} {config.device} {platform.node()} {files}"
    measure = partial(
        recall, f"window {machine}", partial(_measure_reading, open_pool, llama.max_tokens, sampler), not is_busy()
    )
    window = choose_window(config, llama.max_tokens, cell_nbytes, measure)
    wanted = config.memory_mib * 2**20 // cell_nbytes
    remembered = min(max(wanted, _LEAST_REMEMBERED * window), _MOST_REMEMBERED * window)
    in_use, remembered = (min(room, config.cache_tokens, _MAX_CELLS) for room in (_IN_USE * window, remembered))
    num_cells, num_bytes = -(-(in_use + remembered) // _CELL_STEP) * _CELL_STEP, config.memory_mib * 2**20
    model = GgufModel(open_pool(num_cells, max(cell_nbytes, num_bytes // remembered), num_bytes), sampler)
    tree = recall(f"tree {config.device} {files}", lambda: {"difference": measure_tree_difference(model)})
    check_tree_difference(tree["difference"], "llama.cpp")
    if not llama.has_state:
        row_cost = partial(_measure_row_cost, model)
        model.row_cost = recall(f"row cost {machine}", lambda: {"row_cost": row_cost()}, not is_busy())["row_cost"]
    return LoadedModel(
        model,
        tokenizer,
        str(fit),
        lambda name, *measure: recall(f"{files} gguf {name}", *measure),
        cache_tokens=in_use,
        context_tokens=window,
    )


def _count_states(config: EngineConfig, state_nbytes: int) -> int:
    """As many as the memory of the settings has room for, within bounds. Raises ModelError if there is too little."""
    needed, room = MIN_STATES * state_nbytes, find_room(1)
    if needed > room:
        raise ModelError(
            f"this machine has no memory for {MIN_STATES} copies of its recurrent state: they take "
            f"{needed >> 10:,} KiB, and it has room for {room >> 10:,}"
        )
    return min(max(config.memory_mib * 2**20 // state_nbytes, MIN_STATES), NUM_SEQUENCE_IDS)


def _open_pool(
    llama: Llama, fit: Fit, num_states: int, state_nbytes: int, num_cells: int, cell_nbytes: int, num_bytes: int = 0
) -> CellPool:
    """A new context, in place of an earlier one, with room for tokens, and for states if the model has them."""
    llama.open_context(num_cells, fit.num_threads, num_states or NUM_SEQUENCE_IDS)
    if num_states:
        return StatePool(llama, num_cells, cell_nbytes, num_bytes, num_states, state_nbytes)
    return CellPool(llama, num_cells, cell_nbytes, num_bytes)


def _measure_reading(open_pool: Callable[[int, int], CellPool], max_tokens: int, sampler: NumpySampler) -> Measured:
    """Measured in a context of its own, because the one that is used has memory for what is measured."""
    return measure_reading(GgufModel(open_pool(min(MAX_AUTO_TOKENS, max_tokens) + _CELL_STEP, 1), sampler))


def _measure_row_cost(model: GgufModel) -> float:
    """Of a trial: llama.cpp computes several rows in another way than one. What that gains depends on the file."""
    cache = model.new_cache(_NUM_TRIAL_ROWS)
    seconds = {1: math.inf, _NUM_TRIAL_ROWS: math.inf}
    for num_rows in list(seconds) * _NUM_TRIALS:
        tree = TokenTree((1,), (1,) * (num_rows - 1), (None, *range(num_rows - 2))[: num_rows - 1])
        started_s = time.perf_counter()
        model.forward([SequenceInput(cache, tree)])
        seconds[num_rows] = min(seconds[num_rows], time.perf_counter() - started_s)
        cache.discard()
    return max((seconds[_NUM_TRIAL_ROWS] / seconds[1] - 1) / (_NUM_TRIAL_ROWS - 1), 0)


def _check_tokens(llama: Llama, config: EngineConfig, tokenizer: LoadedTokenizer) -> None:
    """Raises ModelError if llama.cpp makes other tokens of a text."""
    library = read_tokenizer_file(config.model_dir).tokenizer
    for text, ids in tokenizer.sample:
        check_ids(library, ids, tuple(llama.encode(text)), "llama.cpp")


def _choose_fit(llama: Llama, num_threads: int | None) -> Fit:
    """A small model leaves the cores to the editor; a larger one leaves it one of more than two."""
    num_cores = count_cores()
    chosen = 1 if llama.num_weights <= MAX_SMALL else num_cores - (num_cores > 2)
    return Fit(llama.dtype, num_threads or chosen, f"llama.cpp, {llama.num_weights / 1e6:,.0f} million weights")

"""A folder with a GGUF file to a model on llama.cpp; or why it would not run rightly there."""

import math
import platform
import time
from functools import partial
from pathlib import Path

import llama_cpp

from inference.config import AUTO_DTYPE, EngineConfig
from inference.errors import ModelError
from inference.healing.loaded_tokenizer import LoadedTokenizer, check_ids, load_tokenizer
from inference.healing.token_tree import TokenTree
from inference.healing.tokenizer_file import read_tokenizer_file
from inference.model.gguf.kv_cache import CellPool
from inference.model.gguf.llama import Llama
from inference.model.gguf.model import GgufModel
from inference.model.language_model import LoadedModel, Part
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
from inference.model.window import MAX_AUTO_TOKENS, choose_window, measure_reading
from inference.model_folder import find_gguf_file

_DTYPES = (AUTO_DTYPE, "float32")  # in which llama.cpp computes, whatever the file has
_CELL_STEP = 256  # llama.cpp rounds up to it
_MAX_CELLS = 2**20  # some thousand times as many end the process
_NUM_TRIAL_ROWS, _NUM_TRIALS = 4, 6
# Room in contexts of full length: for those in use at least, for those remembered at least, and for each at most. What
# all of them have, each row looks at: with 20,000 tokens it takes three times as long as with 400.
_LEAST_IN_USE, _LEAST_REMEMBERED, _MOST = 4, 2, 8
_SHAPE = ("n_head", "n_head_kv", "n_layer", "n_embd")
_OF_NUMBERS = 2  # bytes of a key's or value's number, float16

# What the cache of a model must do: be cut back, and branch.
_OBSTACLES = {
    "llama_model_is_recurrent": "has a recurrent state, which can neither be cut back nor branch",
    "llama_model_is_hybrid": "has layers with a recurrent state, which can neither be cut back nor branch",
    "llama_model_has_encoder": "has an encoder, and writes only about the text that the encoder has read",
}


def load_gguf_model(config: EngineConfig) -> LoadedModel[GgufModel]:
    """The model in `config.model_dir`. Raises ModelError, with the reason, if it cannot be run rightly."""
    path = find_gguf_file(config.model_dir)
    try:
        return _load(config, path)
    except ModelError as error:
        raise ModelError(f"cannot load {path.name}: {error}") from error


def open_description(config: EngineConfig) -> Llama:
    """The model without its weights, which need not be in its file. Raises ModelError as `load_gguf_model` does."""
    path = find_gguf_file(config.model_dir)
    try:
        return _open(config, path, reads_weights=False)[0]
    except ModelError as error:
        raise ModelError(f"cannot load {path.name}: {error}") from error


def _open(config: EngineConfig, path: Path, reads_weights: bool = True) -> tuple[Llama, LoadedTokenizer]:
    llama = Llama(path, config.device, reads_weights)
    for question, obstacle in _OBSTACLES.items():
        if getattr(llama_cpp, question)(llama.model):
            raise ModelError(f"it {obstacle}")
    tokenizer = load_tokenizer(config.model_dir, llama.vocab_size)
    _check_tokens(llama, config, tokenizer)
    return llama, tokenizer


def _load(config: EngineConfig, path: Path) -> LoadedModel[GgufModel]:
    if config.dtype not in _DTYPES:
        raise ModelError(f"a GGUF file has its own precision, which cannot be {config.dtype} (--dtype)")
    llama, tokenizer = _open(config, path)
    fit = _choose_fit(llama, config.num_threads)
    cell_nbytes = _find_cell_nbytes(llama)
    sampler = NumpySampler(tokenizer.vocabulary, tokenizer.trie)
    files = identify_files(path for path in config.model_dir.iterdir() if path.is_file())
    recall = open_measurements(config.graph_dir)
    machine = f"{fit.num_threads} {config.device} {platform.node()} {files}"
    measure = partial(recall, f"window {machine}", partial(_measure_reading, llama, fit, sampler), not is_busy())
    window = choose_window(config, llama.max_tokens, cell_nbytes, measure)
    in_use, remembered = (
        _choose_room(config, window, cell_nbytes, least) for least in (_LEAST_IN_USE, _LEAST_REMEMBERED)
    )
    num_cells, num_bytes = -(-(in_use + remembered) // _CELL_STEP) * _CELL_STEP, config.memory_mib * 2**20
    llama.open_context(num_cells, fit.num_threads)
    pool = CellPool(llama, num_cells, max(cell_nbytes, num_bytes // remembered), num_bytes)
    model = GgufModel(pool, sampler)
    tree = recall(f"tree {config.device} {files}", lambda: {"difference": measure_tree_difference(model)})
    check_tree_difference(tree["difference"], "llama.cpp")
    model.row_cost = recall(f"row cost {machine}", lambda: {"row_cost": _measure_row_cost(model)}, not is_busy())[
        "row_cost"
    ]
    return LoadedModel(
        model,
        tokenizer,
        str(fit),
        lambda name, *measure: recall(f"{files} gguf {name}", *measure),
        cache_tokens=in_use,
        context_tokens=window,
    )


def _measure_reading(llama: Llama, fit: Fit, sampler: NumpySampler) -> Measured:
    """Measured in a context of its own, because the one that is used has memory for what is measured."""
    num_cells = min(MAX_AUTO_TOKENS, llama.max_tokens) + _CELL_STEP
    llama.open_context(num_cells, fit.num_threads)
    return measure_reading(GgufModel(CellPool(llama, num_cells, 1), sampler))


def _measure_row_cost(model: GgufModel) -> float:
    """Of a trial: llama.cpp computes several rows in another way than one. What that gains depends on the file."""
    cache = model.new_cache(_NUM_TRIAL_ROWS)
    seconds = {1: math.inf, _NUM_TRIAL_ROWS: math.inf}
    for num_rows in list(seconds) * _NUM_TRIALS:
        tree = TokenTree((1,), (1,) * (num_rows - 1), (None, *range(num_rows - 2))[: num_rows - 1])
        started_s = time.perf_counter()
        model.forward([Part(cache, tree)])
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


def _choose_room(config: EngineConfig, window: int, cell_nbytes: int, least: int) -> int:
    """As many tokens as the memory of the settings has room for; `least`: contexts of full length."""
    num_tokens = min(max(config.memory_mib * 2**20 // cell_nbytes, least * window), _MOST * window)
    return min(num_tokens, config.cache_tokens, _MAX_CELLS)


def _find_cell_nbytes(llama: Llama) -> int:
    """Of the keys and values of a token."""
    family = llama.read_metadata("general.architecture")
    heads, kv_heads, num_layers, width = (
        int(getattr(llama_cpp, f"llama_model_{name}")(llama.model)) for name in _SHAPE
    )
    lengths = (llama.read_metadata(f"{family}.attention.{part}_length") for part in ("key", "value"))
    return num_layers * kv_heads * sum(int(length or width // heads) for length in lengths) * _OF_NUMBERS

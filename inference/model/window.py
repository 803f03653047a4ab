"""How many tokens of a prompt are read: what this machine reads in about two seconds, and has memory for."""

import platform
import time
from collections.abc import Callable

from inference.config import DEFAULT_CONTEXT_TOKENS, EngineConfig
from inference.errors import ModelError
from inference.healing.token_tree import TokenTree
from inference.model.folder_file import read_folder_file
from inference.model.language_model import LanguageModel, LoadedModel, SequenceInput
from inference.model.measurements import Measured, find_memory, is_busy

MAX_AUTO_TOKENS = 8192
READ_S = 2.0
_FIRST_ROWS, _MAX_ROWS, _SHORT_PASS_S = 16, 512, 0.25
_MEMORY_SHARE = 0.5  # for keys and values; most of the rest may be weights
_NUM_CONTEXTS = 6  # in use and remembered, for which there must be memory
_ROUND = 256


def choose_window(config: EngineConfig, max_tokens: int, token_nbytes: int, measure: Callable[[], Measured]) -> int:
    """The configured window, else that of the folder's file, else the measured one; at most what the model sees.

    `max_tokens`: of the model; `token_nbytes`: of the keys and values of a token. Raises ModelError if there is no
    memory for what the setting names.
    """
    room = find_room(token_nbytes) // _NUM_CONTEXTS
    if (named := config.max_context_tokens) is not None:
        if named > room:
            raise ModelError(
                f"this machine has no memory for a context of {named} tokens (--context): at most {room} would fit"
            )
        return min(named, max_tokens)
    return min(read_folder_file(config.model_dir).context_tokens or round_tokens(measure()["tokens"]), max_tokens, room)


def find_room(token_nbytes: int) -> int:
    """The most tokens for whose keys and values there is memory, in all sequences together."""
    return int(find_memory() * _MEMORY_SHARE) // token_nbytes


def round_tokens(num_tokens: float) -> int:
    """A number of `auto`."""
    return max(int(min(num_tokens, MAX_AUTO_TOKENS)) // _ROUND * _ROUND, DEFAULT_CONTEXT_TOKENS)


def check_window(config: EngineConfig, max_tokens: int) -> None:
    """Raises ModelError if the setting names more tokens than the model sees."""
    if (config.max_context_tokens or 0) > max_tokens:
        raise ModelError(
            f"a context of {config.max_context_tokens} tokens (--context) is more than the model sees: at most "
            f"{max_tokens} would fit"
        )


def choose_loaded_window(config: EngineConfig, loaded: LoadedModel[LanguageModel]) -> int:
    """The window of a model that is loaded. Raises ModelError if the setting names more than the model sees."""
    most = loaded.model.max_tokens
    check_window(config, most)
    if loaded.context_tokens is not None:
        return loaded.context_tokens
    name = f"window {platform.node()} {loaded.runs_as}"
    return choose_window(
        config,
        most,
        measure_token_nbytes(loaded.model),
        lambda: loaded.recall(name, lambda: measure_reading(loaded.model), not is_busy()),
    )


def measure_token_nbytes(model: LanguageModel) -> int:
    """The memory for the keys and values of a token."""
    cache = model.new_cache(_ROUND)
    return -(-cache.nbytes // _ROUND)


def measure_reading(model: LanguageModel, seconds: float = READ_S) -> Measured:
    """How many tokens are read in this time: by reading, because a row takes longer the more there are before it."""
    cache, num_rows, started_s = model.new_cache(_MAX_ROWS), _FIRST_ROWS, time.perf_counter()
    most, passed_s = min(MAX_AUTO_TOKENS, model.max_tokens), 0.0
    while cache.num_tokens < most and passed_s < seconds:
        tree = TokenTree((1,) * min(num_rows, most - cache.num_tokens))
        model.forward([SequenceInput(cache, tree, wants_logits=False)])
        cache.keep(tree)
        before_s, passed_s = passed_s, time.perf_counter() - started_s
        num_rows = min(2 * num_rows, _MAX_ROWS) if passed_s - before_s < _SHORT_PASS_S else num_rows
    return {"tokens": cache.num_tokens * min(1.0, seconds / passed_s)}

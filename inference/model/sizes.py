"""What follows from the size of a model: its precision, its threads and its context. The settings go before it.

docs/models.md has them as a table.
"""

import os

from inference.config import DEFAULT_CONTEXT_TOKENS, EngineConfig
from inference.errors import ModelError
from inference.model.language_model import LanguageModel, LoadedModel
from inference.model_folder import read_folder_file
from inference.platforms import find_memory

MAX_SMALL = 100_000_000  # weights; in float32, they take 0.4 GB
_MAX_MEDIUM = 1_600_000_000  # of models that are called 1.5B
MEDIUM_TOKENS, _LARGEST_TOKENS = 2048, 8192
_MEMORY_SHARE = 0.5  # for keys and values; most of the rest may be weights
_NUM_CONTEXTS = 7  # in use and remembered, for which there must be memory
_NUM_TOKENS = 256  # of a cache whose memory is looked at


def choose_threads(named: int | None, num_weights: int) -> int:
    """The threads of a model on the CPU. A small one leaves the cores to the editor."""
    num_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return named or (1 if num_weights <= MAX_SMALL else num_cores - (num_cores > 2))


def describe_choice(dtype: str, num_threads: int, library: str, num_weights: int) -> str:
    """What is said of a model on the CPU."""
    threads = "1 thread" if num_threads == 1 else f"{num_threads} threads"
    return f"{dtype}, {threads} ({library}, {num_weights / 1e6:,.0f} million weights)"


def choose_auto_tokens(num_weights: int, is_on_gpu: bool = False) -> int:
    """How many tokens of a prompt are read where nothing names them."""
    if is_on_gpu or num_weights <= MAX_SMALL:
        return _LARGEST_TOKENS
    return MEDIUM_TOKENS if num_weights <= _MAX_MEDIUM else DEFAULT_CONTEXT_TOKENS


def choose_context_tokens(config: EngineConfig, max_tokens: int, token_nbytes: int, auto_tokens: int) -> int:
    """The configured context, else that of the folder's file, else `auto_tokens`; at most what the model sees.

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
    return min(read_folder_file(config.model_dir).context_tokens or auto_tokens, max_tokens, room)


def check_context_tokens(config: EngineConfig, max_tokens: int) -> None:
    """Raises ModelError if the setting names more tokens than the model sees."""
    if (config.max_context_tokens or 0) > max_tokens:
        raise ModelError(
            f"a context of {config.max_context_tokens} tokens (--context) is more than the model sees: at most "
            f"{max_tokens} would fit"
        )


def choose_loaded_context_tokens(config: EngineConfig, loaded: LoadedModel[LanguageModel]) -> int:
    """The context of a model that is loaded. Raises ModelError if the setting names more than the model sees."""
    most = loaded.model.max_tokens
    check_context_tokens(config, most)
    if loaded.context_tokens is not None:
        return loaded.context_tokens
    token_nbytes = -(-loaded.model.new_cache(_NUM_TOKENS).nbytes // _NUM_TOKENS)
    return choose_context_tokens(config, most, token_nbytes, loaded.auto_tokens)


def find_room(token_nbytes: int) -> int:
    """The most tokens for whose keys and values there is memory, in all sequences together."""
    return int(find_memory() * _MEMORY_SHARE) // token_nbytes

"""A model on llama.cpp: a folder with a GGUF file, or why it would not run rightly; token trees in, logits out.

All sequences of a step are one pass. What a row gets depends on its neighbours there in the last bits, as llama.cpp
computes products of one row and of several in different ways.
"""

import math
from collections.abc import Generator, Sequence

import llama_cpp

from inference.config import AUTO_DTYPE, EngineConfig
from inference.errors import InvalidRequestError, ModelError
from inference.healing.loaded_tokenizer import check_ids, load_tokenizer
from inference.healing.tokenizer_file import read_tokenizer_file
from inference.model.gguf.kv_cache import CellPool, GgufSequenceCache
from inference.model.gguf.llama import NUM_SEQUENCE_IDS, BatchSpan, Llama
from inference.model.gguf.recurrent_cache import MIN_STATES, RecurrentSequenceCache, StatePool
from inference.model.language_model import (
    LanguageModel,
    LoadedModel,
    SequencePart,
    check_tree_difference,
    measure_tree_difference,
)
from inference.model.sampler import NumpyRow, NumpyTokens
from inference.model.sizes import choose_auto_tokens, choose_context_tokens, choose_threads, describe_choice, find_room
from inference.model_folder import find_gguf_file

_DTYPES = (AUTO_DTYPE, "float32")  # in which llama.cpp computes, whatever the file has
_CELL_STEP = 256  # llama.cpp rounds up to it
_MAX_CELLS = 2**20  # some thousand times as many end the process
_FLOATS = ("F32", "F16")  # in the names of precisions, BF16 too: of those, several rows take hardly longer than one
_CHEAP_TOKEN = 0.1
# Room in contexts of full length: for those in use (four alternatives, and what each writes), for those remembered at
# least and at most, and for those in use beside them: if that is not enough, those remembered make room. llama.cpp
# takes the memory for all of it at once. What all of them have, each row looks at: with 20,000 tokens it takes three
# times as long as with 400.
_IN_USE, _LEAST_REMEMBERED, _MOST_REMEMBERED, _BESIDE = 5, 2, 8, 2
_Cache = GgufSequenceCache | RecurrentSequenceCache


class GgufModel(LanguageModel):
    """A `LanguageModel` on llama.cpp. One thread at a time may use it."""

    runs_together = True

    def __init__(self, pool: CellPool, tokens: NumpyTokens, token_cost: float = math.inf) -> None:
        self._pool, self._tokens, self.token_cost = pool, tokens, token_cost
        self.max_tokens = pool.llama.max_tokens

    def new_cache(self, num_tokens: int = 256) -> _Cache:
        """An empty cache with room for `num_tokens`. Raises OverloadedError."""
        if isinstance(self._pool, StatePool):
            return RecurrentSequenceCache(self._pool, num_tokens)
        return GgufSequenceCache(self._pool, num_tokens)

    def forward(self, parts: Sequence[SequencePart]) -> list[list[NumpyRow]]:
        """Forwards all parts, in as few passes as their caches allow. Returns the rows of each part that wants them.

        Raises OverloadedError or ModelError; the caches then have the tokens that they had.
        """
        begun: list[tuple[_Cache, Generator[list[BatchSpan], None, None]]] = []
        found: list[dict[int, NumpyRow]] = [{} for _ in parts]
        try:
            for part in parts:
                assert isinstance(part.cache, _Cache), "every cache comes from new_cache"
                part.cache.reserve(part.tree.num_tokens)
                begun.append((part.cache, part.cache.build_passes(part)))
            while spans := [
                (span, rows) for (_, passes), rows in zip(begun, found, strict=True) for span in next(passes, [])
            ]:
                self._run(*zip(*spans, strict=True))
        except BaseException:
            for cache, passes in begun:
                passes.close()
                cache.discard()
            raise
        return [[rows[index] for index in range(part.num_logit_rows)] for part, rows in zip(parts, found, strict=True)]

    def _run(self, spans: Sequence[BatchSpan], found: Sequence[dict[int, NumpyRow]]) -> None:
        """One pass, whose rows are added to what each span's part has found."""
        num_tokens = max(each.position + len(each.token_ids) for each in spans)
        if num_tokens > self.max_tokens:
            raise InvalidRequestError(
                f"a sequence of {num_tokens} tokens is longer than the {self.max_tokens} tokens of the model"
            )
        logits = self._pool.llama.decode(spans)
        read = (row for each in logits for row in self._tokens.build_rows(each))
        wanted = [(span.row, rows) for span, rows in zip(spans, found, strict=True) if span.row is not None]
        for row, (index, rows) in zip(read, wanted, strict=True):
            rows[index] = row


def load_gguf_model(config: EngineConfig) -> LoadedModel[GgufModel]:
    """Returns the model in `config.model_dir`. Raises ModelError, with the reason, if it cannot be run rightly."""
    path = find_gguf_file(config.model_dir)
    try:
        if config.dtype not in _DTYPES:
            raise ModelError(f"a GGUF file has its own precision, which cannot be {config.dtype} (--dtype)")
        return _load(config, Llama(path, config.device))
    except ModelError as error:
        raise ModelError(f"cannot load {path.name}: {error}") from error


def _load(config: EngineConfig, llama: Llama) -> LoadedModel[GgufModel]:
    if llama_cpp.llama_model_has_encoder(llama.model):
        raise ModelError("it has an encoder, and writes only about the text that the encoder has read")
    tokenizer, library = load_tokenizer(config.model_dir, llama.vocab_size), read_tokenizer_file(config.model_dir)
    for text, ids in tokenizer.sample:
        check_ids(library.tokenizer, ids, tuple(llama.encode(text)), "llama.cpp")
    num_threads = choose_threads(config.num_threads, llama.num_weights)
    cell_nbytes, state_nbytes = llama.measure_memory()
    num_states = _count_states(config, state_nbytes) if llama.has_state else 0
    is_on_gpu = config.device != "cpu" and llama_cpp.llama_supports_gpu_offload()
    auto_tokens = choose_auto_tokens(llama.num_weights, is_on_gpu)
    num_context = choose_context_tokens(config, llama.max_tokens, cell_nbytes, auto_tokens)
    wanted = config.memory_mib * 2**20 // cell_nbytes
    remembered = min(max(wanted, _LEAST_REMEMBERED * num_context), _MOST_REMEMBERED * num_context)
    in_use, remembered = (min(room, config.cache_tokens, _MAX_CELLS) for room in (_IN_USE * num_context, remembered))
    num_cells = max(in_use, remembered + min(_BESIDE * num_context, in_use))
    num_cells, num_bytes = -(-num_cells // _CELL_STEP) * _CELL_STEP, config.memory_mib * 2**20
    cell_nbytes = max(cell_nbytes, num_bytes // remembered)
    llama.open_context(num_cells, num_threads, num_states or NUM_SEQUENCE_IDS)
    if num_states:
        pool: CellPool = StatePool(llama, num_cells, cell_nbytes, num_bytes, num_states, state_nbytes)
    else:
        pool = CellPool(llama, num_cells, cell_nbytes, num_bytes)
    has_cheap_tokens = not num_states and (is_on_gpu or any(name in llama.dtype for name in _FLOATS))
    tokens = NumpyTokens(tokenizer.vocabulary, tokenizer.trie)
    model = GgufModel(pool, tokens, _CHEAP_TOKEN if has_cheap_tokens else math.inf)
    check_tree_difference(measure_tree_difference(model), "llama.cpp")
    runs_as = describe_choice(llama.dtype, num_threads, "llama.cpp", llama.num_weights)
    return LoadedModel(model, tokenizer, runs_as, cache_tokens=in_use, context_tokens=num_context)


def _count_states(config: EngineConfig, state_nbytes: int) -> int:
    """As many as the memory of the settings has room for, within bounds. Raises ModelError if there is too little."""
    needed, room = MIN_STATES * state_nbytes, find_room(1)
    if needed > room:
        raise ModelError(
            f"this machine has no memory for {MIN_STATES} copies of its recurrent state: they take "
            f"{needed >> 10:,} KiB, and it has room for {room >> 10:,}"
        )
    return min(max(config.memory_mib * 2**20 // state_nbytes, MIN_STATES), NUM_SEQUENCE_IDS)

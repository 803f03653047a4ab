"""From a model folder to an engine that has completed something."""

import torch

from inference.config import EngineConfig
from inference.engine import Engine
from inference.errors import MidtokenError, ModelError
from inference.prompt import FimOrder, PromptBuilder, find_fim_markers
from inference.runner import load_runner
from inference.sampler import Sampler
from inference.text_encoder import load_text_encoder
from inference.waiting_sink import complete
from inference.wire import CompletionRequest
from trie_cache.errors import TrieCacheError
from trie_cache.hot_prefixes import HotPrefixCache
from trie_cache.trie import Trie
from trie_cache.vocabulary import Vocabulary


def load_engine(config: EngineConfig) -> Engine:
    """An engine for the model in `config.model_dir`. Raises ModelError where it cannot be used."""
    if config.fim_order not in list(FimOrder):
        raise ModelError(f"fim_order must be one of {', '.join(FimOrder)}, not {config.fim_order!r}")
    runner = load_runner(config)
    encoder = load_text_encoder(config.model_dir)
    try:
        vocabulary = Vocabulary.from_folder(config.model_dir, runner.vocab_size)
    except TrieCacheError as error:
        raise ModelError(str(error)) from error
    trie = Trie.build(vocabulary)
    start_ids = encoder.start_ids or tuple(sorted(vocabulary.end_ids))[:1]
    if not start_ids:
        raise ModelError(f"{config.model_dir} names no token that a text begins or ends with")
    prompts = PromptBuilder(
        encoder, vocabulary, trie, start_ids, find_fim_markers(vocabulary), FimOrder(config.fim_order)
    )
    sampler = Sampler(vocabulary, HotPrefixCache(trie), trie, torch.device(config.device))
    engine = Engine(config, runner, sampler, prompts)
    if config.warm:
        _warm(engine)
    return engine


def _warm(engine: Engine) -> None:
    """Runs one small completion: the first is slow, and a model that cannot step is found out now."""
    try:
        complete(engine, CompletionRequest("a = b", "\n", max_tokens=2))
    except MidtokenError as error:
        engine.close()
        raise ModelError(f"the model cannot be used: {error}") from error

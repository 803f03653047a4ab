"""From a model folder to what an engine or a character-level model is made of."""

from dataclasses import dataclass

from inference.config import EngineConfig
from inference.errors import ModelError
from inference.healing.text_encoder import TextEncoder, load_text_encoder
from inference.model.language_model import LanguageModel
from inference.model.runner import Runner, load_runner
from inference.model.sampler import Sampler
from inference.model.torch_model import TorchModel
from trie_cache.errors import TrieCacheError
from trie_cache.hot_prefixes import HotPrefixCache
from trie_cache.trie import Trie
from trie_cache.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """One model, its tokenizer and its vocabulary."""

    runner: Runner
    encoder: TextEncoder
    vocabulary: Vocabulary
    trie: Trie
    start_ids: tuple[int, ...]  # what every text of this model begins with


def load_model(config: EngineConfig) -> LoadedModel:
    """The model in `config.model_dir`. Raises ModelError where it cannot be used."""
    runner = load_runner(config)
    encoder = load_text_encoder(config.model_dir)
    try:
        vocabulary = Vocabulary.from_folder(config.model_dir, runner.vocab_size)
    except TrieCacheError as error:
        raise ModelError(str(error)) from error
    start_ids = encoder.start_ids or tuple(sorted(vocabulary.end_ids))[:1]
    if not start_ids:
        raise ModelError(f"{config.model_dir} names no token that a text begins or ends with")
    return LoadedModel(runner, encoder, vocabulary, Trie.build(vocabulary), start_ids)


def build_language_model(loaded: LoadedModel) -> LanguageModel:
    """What an engine steps."""
    sampler = Sampler(loaded.vocabulary, HotPrefixCache(loaded.trie), loaded.trie, loaded.runner.device)
    return TorchModel(loaded.runner, sampler)

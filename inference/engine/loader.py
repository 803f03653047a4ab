"""Loads an engine from a model folder."""

from inference.config import EngineConfig
from inference.engine.engine import Engine
from inference.engine.prompts.fim_markers import FimOrder, find_fim_markers
from inference.engine.prompts.prompt import PromptBuilder
from inference.engine.waiting_sink import complete
from inference.errors import MidtokenError, ModelError, quote
from inference.model.loader import build_language_model, load_model
from inference.protocol.completion import CompletionRequest


def load_engine(config: EngineConfig) -> Engine:
    """An engine for the model in `config.model_dir`, tested with one small completion if `config.warm`.

    Raises ModelError if the model cannot be used.
    """
    if config.fim_order not in list(FimOrder):
        raise ModelError(f"fim_order must be one of {', '.join(FimOrder)}, not {quote(config.fim_order)}")
    loaded = load_model(config)
    vocabulary, trie = loaded.vocabulary, loaded.trie
    markers = find_fim_markers(vocabulary)
    prompts = PromptBuilder(loaded.encoder, vocabulary, trie, loaded.start_ids, markers, FimOrder(config.fim_order))
    engine = Engine(config, build_language_model(loaded), prompts)
    if config.warm:
        _warm(engine)
    return engine


def _warm(engine: Engine) -> None:
    """Runs one small completion, because the first one is slow. Raises ModelError if it fails."""
    try:
        complete(engine, CompletionRequest("a = b", "\n", max_tokens=2))
    except MidtokenError as error:
        engine.close()
        raise ModelError(f"the model cannot be used: {error}") from error

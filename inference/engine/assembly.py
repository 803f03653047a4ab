"""Loads an engine from a model folder."""

import dataclasses
import logging
import time
from collections.abc import Callable

from inference.config import EngineConfig
from inference.engine.engine import Engine
from inference.engine.fill_in import list_fill_ins
from inference.engine.layout import FillIn
from inference.engine.local_executor import LocalExecutor
from inference.engine.marker_check import MarkerMeasure, measure_markers
from inference.engine.prompt import PromptBuilder
from inference.engine.sink import complete
from inference.errors import MidtokenError, ModelError, to_public_error
from inference.model.language_model import LanguageModel, LoadedModel
from inference.model.loader import load_model
from inference.model.sizes import choose_loaded_window
from inference.protocol.completion import CompletionRequest

_log = logging.getLogger(__name__)


def load_engine(config: EngineConfig) -> Engine:
    """An engine for the model in `config.model_dir`, tested with one small completion.

    Raises ModelError if the model cannot be used.
    """
    return build_engine(config, load_model(config))


def build_engine(config: EngineConfig, loaded: LoadedModel[LanguageModel]) -> Engine:
    """An engine for a model that is loaded already, as `load_engine`."""
    try:
        window = choose_loaded_window(config, loaded)
    except Exception as error:  # a model's code may raise anything in its first pass
        raise ModelError(f"the model cannot be used: {to_public_error(error, _log.error)}") from error
    cache_tokens = min(config.cache_tokens, loaded.cache_tokens)
    config = dataclasses.replace(config, max_context_tokens=window, cache_tokens=cache_tokens)
    fill_in = choose_fill_in(config, loaded)
    engine = start_engine(config, loaded.model, PromptBuilder(loaded.tokenizer, fill_in), runs_as=loaded.runs_as)
    _warm(engine)
    return engine


def start_engine(
    config: EngineConfig,
    model: LanguageModel,
    prompts: PromptBuilder,
    clock: Callable[[], float] = time.monotonic,
    runs_as: str = "",
) -> Engine:
    """An engine for a model, which is not tested. `runs_as`: see `Executor`."""
    return Engine(config, LocalExecutor(config, model, prompts.tokenizer, clock, runs_as), prompts, clock)


def choose_fill_in(config: EngineConfig, loaded: LoadedModel[LanguageModel]) -> FillIn | None:
    """How suffixes are given to the model; None if they are not.

    A layout that the setting or the folder's file names is taken as it is; one of the markers' family only if the model
    was trained on them, and of several that in which it most likely ends where the suffix begins. Raises ModelError if
    file or setting are wrong.
    """
    choice = list_fill_ins(config.fill_in_layout, config.model_dir, loaded.tokenizer.vocabulary)
    if choice.is_named or not choice.fill_ins:
        return next(iter(choice.fill_ins), None)
    measures = {fill_in: _measure(loaded, fill_in) for fill_in in choice.fill_ins}
    fill_in = max(measures, key=lambda each: measures[each].log_end)
    if measures[fill_in].is_trained:
        return fill_in
    words = measures[fill_in].describe()
    _log.warning("the model in %s has fill-in markers, but %s; it reads no suffixes", config.model_dir, words)
    return None


def _measure(loaded: LoadedModel[LanguageModel], fill_in: FillIn) -> MarkerMeasure:
    try:
        return measure_markers(loaded.model, loaded.tokenizer, fill_in)
    except Exception as error:  # a model's code may raise anything in its first pass
        raise ModelError(f"the model cannot be used: {to_public_error(error, _log.error)}") from error


def _warm(engine: Engine) -> None:
    """Runs one small completion, because the first one is slow. Raises ModelError if it fails."""
    try:
        complete(engine, CompletionRequest("a = b", "\n", max_tokens=2))
    except MidtokenError as error:
        engine.close()
        raise ModelError(f"the model cannot be used: {error}") from error

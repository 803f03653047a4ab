"""Loads an engine in front of a server that has the model."""

import sys
from collections.abc import Sequence
from dataclasses import replace

from inference.config import EngineConfig, find_engine_url
from inference.engine.engine import Engine
from inference.engine.fill_in import list_fill_ins
from inference.engine.prompt import PromptBuilder
from inference.errors import MidtokenError, ModelError
from inference.healing.loaded_tokenizer import load_tokenizer
from inference.model.sizes import MEDIUM_TOKENS, check_window
from inference.model_folder import read_folder_file
from inference.remote.discovery import Find, detect_server
from inference.remote.event_loop import EventLoopThread
from inference.remote.executor import RemoteExecutor
from inference.remote.http_client import HttpClient
from inference.remote.server_health import ServerHealth


def load_remote_engine(config: EngineConfig, find: Find = detect_server) -> Engine:
    """An engine for the server `config.engine_url`, with the tokenizer in `config.model_dir`. Raises ModelError."""
    tokenizer = load_tokenizer(config.model_dir)
    choice = list_fill_ins(config.fill_in_layout, config.model_dir, tokenizer.vocabulary)
    prompts = PromptBuilder(tokenizer, next(iter(choice.fill_ins), None))
    loop = EventLoopThread()
    try:
        health = loop.run(_open(config, tokenizer.sample, find))
    except MidtokenError as error:  # each means that the engine cannot be used
        loop.close()
        raise ModelError(str(error)) from error
    window = config.max_context_tokens or read_folder_file(config.model_dir).context_tokens or MEDIUM_TOKENS
    config = replace(config, max_context_tokens=window)
    return Engine(config, RemoteExecutor(health, tokenizer, loop), prompts)


async def _open(config: EngineConfig, sample: Sequence[tuple[str, tuple[int, ...]]], find: Find) -> ServerHealth:
    """The server. Raises ModelError or ServerError."""
    health = ServerHealth(HttpClient(find_engine_url(config.engine_url), config.engine_key), sample, find)
    try:
        await health.open()
        check_window(config, health.max_tokens or sys.maxsize)
    except BaseException:
        await health.close()
        raise
    return health

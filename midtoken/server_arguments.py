"""Adds to a parser the arguments that name a server. Imports nothing slow: the language server starts with it."""

import argparse
import dataclasses
from collections.abc import Callable
from pathlib import Path

from inference.config import EngineConfig
from inference.errors import MidtokenError


class UsageError(MidtokenError):
    """An argument, or a file that it names, cannot be used, or arguments contradict each other."""


def add_connection_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds `--server`, and the arguments for starting the host."""
    group = parser.add_argument_group("a server that runs")
    group.add_argument(
        "--server",
        type=_parse_address,
        metavar="HOST:PORT",
        help="use the completion server at this gRPC address of this machine, grpcs://HOST:PORT on another one, or "
        "unix:PATH, and start none",
    )
    group.add_argument(
        "--server-key",
        type=Path,
        metavar="FILE",
        help="a file with your key for --server (default: MIDTOKEN_SERVER_KEY)",
    )
    group.add_argument(
        "--tls-ca", type=Path, metavar="FILE", help="for grpcs://, trust only the certificates in this PEM file"
    )
    add_server_arguments(parser)


def add_server_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds `--model` and `--engine`, an argument for each field of EngineConfig that has one, and `--state-dir`.

    What is not named is None.
    """
    group = parser.add_argument_group("model and server")
    group.add_argument(
        "--model",
        metavar="MODEL",
        help="a folder with a model in Hugging Face layout, a GGUF file, OWNER/NAME[:FILE.gguf][@REVISION] on a hub, "
        "from which it is downloaded once, or ollama:NAME[:TAG], which Ollama has pulled; ./OWNER/NAME is a folder "
        "(default: that of `midtoken models use`, or the bundled one)",
    )
    group.add_argument(
        "--engine",
        metavar="URL[#NAME]",
        help="heal in front of the llama-server, vLLM or SGLang at this address, which runs the model; --model then "
        "only needs the tokenizer, and names the one of several models, if NAME does not",
    )
    group.add_argument(
        "--engine-key",
        type=Path,
        metavar="FILE",
        help="a file with the API key of --engine (default: MIDTOKEN_ENGINE_KEY)",
    )
    for each in dataclasses.fields(EngineConfig):
        if option := each.metadata.get("option"):
            limits = each.metadata["limits"]
            read = number_from(limits[0], limits[1], each.default is None) if limits else str
            group.add_argument(f"--{option.name}", dest=each.name, type=read, metavar=option.metavar, help=option.about)
    group.add_argument("--model-repository", type=Path, metavar="DIR", help=argparse.SUPPRESS)
    group.add_argument(
        "--state-dir",
        type=Path,
        metavar="DIR",
        help="the folder for sockets, logs and locks (default: your own folder)",
    )


def number_from(lowest: int, highest: int, may_be_auto: bool = False) -> Callable[[str], int | None]:
    """Returns the type of an argument that is a number in this range, or `auto`, which is None."""

    def parse(text: str) -> int | None:
        if may_be_auto and text == "auto":
            return None
        if not (text.isdecimal() and lowest <= int(text) <= highest):
            raise argparse.ArgumentTypeError(f"must be a number from {lowest} to {highest}, not {text!r}")
        return int(text)

    return parse


def may_be_remote(options: argparse.Namespace) -> bool:
    """True if the text may reach another machine.

    A server that the user names may have an engine elsewhere, even if it is on this machine.
    """
    return bool(getattr(options, "server", None)) or (options.engine or "").strip().lower().startswith("https://")


def _parse_address(text: str) -> str:
    host, _, port = text.removeprefix("grpcs://").rpartition(":")
    if text.startswith("unix:/") or (host and "/" not in host and port.isdecimal() and int(port) < 2**16):
        return text
    raise argparse.ArgumentTypeError(f"a host and the server's gRPC port, as in 127.0.0.1:8001, not {text!r}")

"""Adds to a parser the arguments that name a server. Imports nothing slow: the language server starts with it."""

import argparse
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

from inference.config import MAX_CONTEXT_TOKENS, MIN_PROMPT_TOKENS, EngineConfig
from inference.errors import MidtokenError
from midtoken.installed import DEFAULT_MODEL_LANGUAGES

_DEFAULTS = EngineConfig(Path())


class UsageError(MidtokenError):
    """An argument, or a file that it names, cannot be used, or arguments contradict each other."""


class Runtime(StrEnum):
    """What runs a model on this machine."""

    AUTO = "auto"  # Triton where it is installed
    TRITON = "triton"
    EMBEDDED = "embedded"


def add_connection_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds `--server`, and the arguments for starting the shared server."""
    group = parser.add_argument_group("a server that runs")
    group.add_argument(
        "--server",
        type=_parse_address,
        metavar="HOST:PORT[,HOST:PORT...]",
        help="use the completion server that runs at this gRPC address or unix:PATH, and start none; "
        "on another machine it needs --tls. While the first of several does not answer, the next one is used",
    )
    group.add_argument(
        "--server-key",
        type=Path,
        metavar="FILE",
        help="a file with your key for --server (default: MIDTOKEN_SERVER_KEY)",
    )
    group.add_argument("--tls", action="store_true", help="use TLS for --server, as grpcs:// does")
    group.add_argument(
        "--tls-ca", type=Path, metavar="FILE", help="trust only the certificates in this PEM file; implies --tls"
    )
    group.add_argument(
        "--insecure",
        action="store_true",
        help="allow a --server on another machine without TLS, or one on this machine that another user may own",
    )
    add_server_arguments(parser)


def add_server_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds `--model`, `--device` and the other arguments that ServerArguments reads."""
    group = parser.add_argument_group("model and server")
    group.add_argument(
        "--model",
        metavar="MODEL",
        help="a folder with a model in Hugging Face layout, a GGUF file, OWNER/NAME[:FILE.gguf][@REVISION] on a hub, "
        "from which it is downloaded once, or ollama:NAME[:TAG], which Ollama has pulled; ./OWNER/NAME is a folder "
        "(default: the bundled model)",
    )
    group.add_argument(
        "--engine",
        metavar="URL[#NAME][,URL...]",
        help="heal in front of the llama-server, vLLM or SGLang at this address, which runs the model; --model then "
        "only needs the tokenizer, and names the one of several models, if NAME does not. With several "
        "addresses, a document stays with one while that one answers",
    )
    group.add_argument(
        "--engine-key",
        type=Path,
        metavar="FILE",
        help="a file with the API key of --engine (default: MIDTOKEN_ENGINE_KEY)",
    )
    group.add_argument(
        "--device",
        default=_DEFAULTS.device,
        help="where the model runs: cpu, or a device of torch or llama.cpp such as cuda or metal; auto: the CPU or, "
        "for a GGUF file, the GPU that llama.cpp was built for (default: %(default)s)",
    )
    group.add_argument(
        "--dtype",
        default=_DEFAULTS.dtype,
        metavar="TYPE",
        help="the precision: float32; on a CPU int8 or int4, the bits of a weight; a torch dtype such as bfloat16; "
        "or auto: what the model's folder names, otherwise what suits the model's size "
        "(default: %(default)s)",
    )
    group.add_argument(
        "--threads",
        type=number_from(1, 1024),
        metavar="N",
        help="threads on the CPU (default: one for a small model; for others, all cores but one, or both of two)",
    )
    group.add_argument(
        "--context",
        type=_parse_context,
        metavar="N",
        help="the most tokens of a prompt; auto: 1024 to 8192, the fewer the larger the model is, or what its folder "
        "names (default: auto)",
    )
    group.add_argument(
        "--cache-ram",
        type=number_from(0, 1_048_576),
        default=_DEFAULTS.memory_mib,
        metavar="MIB",
        help="memory for texts that were read, which are then read no second time; a server for a team needs more "
        "(default: %(default)s)",
    )
    group.add_argument(
        "--runtime",
        choices=[each.value for each in Runtime],
        default=Runtime.AUTO.value,
        help="what runs the model: triton; embedded, a single process without it; or auto, Triton if it is "
        "installed (default: %(default)s)",
    )
    group.add_argument(
        "--triton-binary", type=Path, metavar="PATH", help="use this tritonserver instead of the bundled one"
    )
    group.add_argument("--model-repository", type=Path, metavar="DIR", help=argparse.SUPPRESS)
    group.add_argument(
        "--state-dir",
        type=Path,
        metavar="DIR",
        help="the folder for logs and locks (default: your own state folders)",
    )


def number_from(lowest: int, highest: int) -> Callable[[str], int]:
    """Returns the type of an argument that is a number in this range."""

    def parse(text: str) -> int:
        if not (text.isdecimal() and lowest <= int(text) <= highest):
            raise argparse.ArgumentTypeError(f"must be a number from {lowest} to {highest}, not {text!r}")
        return int(text)

    return parse


def _parse_context(text: str) -> int | None:
    return None if text == "auto" else number_from(MIN_PROMPT_TOKENS, MAX_CONTEXT_TOKENS)(text)


def find_languages(options: argparse.Namespace) -> tuple[str, ...] | None:
    """Returns the languages that the model knows; None: any, or only its server says it."""
    return DEFAULT_MODEL_LANGUAGES if options.model is None and options.server is None else None


def may_be_remote(options: argparse.Namespace) -> bool:
    """True if the text may reach another machine.

    A server that the user names may have an engine elsewhere, even if it is on this machine.
    """
    engines = (options.engine or "").replace(",", " ").split()
    return bool(getattr(options, "server", None)) or any(each.lower().startswith("https://") for each in engines)


def _parse_address(text: str) -> str:
    if text.startswith("unix:/"):
        return text
    for each in text.removeprefix("grpcs://").split(","):
        host, _, port = each.rpartition(":")
        if not host or "/" in host or not port.isdecimal() or int(port) > 65_535:
            raise argparse.ArgumentTypeError(f"a host and the server's gRPC port, as in 127.0.0.1:8001, not {each!r}")
    return text

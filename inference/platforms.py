"""This machine: memory, ports on loopback and who may ask there, proxies, signals, and how midtoken was installed."""

import asyncio
import contextlib
import ipaddress
import json
import os
import re
import shlex
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import inference
from inference.errors import LaunchError

ADDRESS = "127.0.0.1"  # the only one at which anything of ours listens

_LIMITS = ("memory.max", "memory/memory.limit_in_bytes")  # of a container, by the versions 2 and 1 of cgroups
_HOST = re.compile(r"(\[[^]]+\]|[^][:@%]+)(:\d*)?")

# The folder from which `import inference` works. Processes that midtoken starts must import the same code.
IMPORT_ROOT = Path(inference.__file__).resolve().parents[1]


def find_memory(groups: Path = Path("/sys/fs/cgroup")) -> int:
    """The bytes of memory that this process may use, of which a container has a limit of its own."""
    texts = [(groups / name).read_text().strip() for name in _LIMITS if (groups / name).is_file()]
    limits = [int(text) for text in texts if text.isdigit()]
    return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *limits])


def listen(port: int) -> socket.socket:
    """Returns a socket that listens on the port, or on a free one for 0. Nobody else can, until it is closed.

    Raises LaunchError.
    """
    try:
        listener = socket.create_server((ADDRESS, port))
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise LaunchError(
            f"port {port} on {ADDRESS} cannot be used: {reason}; choose another, or 0 for any free one"
        ) from None
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # its connections inherit this
    return listener


def find_stranger(headers: Mapping[str, str]) -> str | None:
    """Returns why an HTTP request to loopback is refused: a web page of another site sent it. None if it did not.

    A page whose name was made to point at loopback (DNS rebinding) sends its own name as `Host`. Browsers send `Origin`
    with what can change something, and say with `Sec-Fetch-Site` where other requests come from; links may. The port in
    `Host` is that of a tunnel's other end, if there is one.
    """
    host = headers.get("Host", "").lower()
    named = _HOST.fullmatch(host)
    if named is None or not is_loopback(named[1].strip("[]")):
        return f"This port answers only under a name or address of loopback, such as {ADDRESS}, [::1] or localhost."
    is_link = headers.get("Sec-Fetch-Mode") == "navigate"
    is_cross_site = headers.get("Sec-Fetch-Site") in ("cross-site", "same-site") and not is_link
    if is_cross_site or headers.get("Origin", f"http://{host}").lower() != f"http://{host}":
        return "This port answers programs and its own pages, not another site."
    return None


def is_loopback(host: str) -> bool:
    """Returns whether it is an IP address of this machine's own, which no other machine can reach, or localhost.

    Any other name is not, whatever it means now.
    """
    host = host.lower().removesuffix(".")
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(host.partition("%")[0])
        return (getattr(address, "ipv4_mapped", None) or address).is_loopback
    return host == "localhost"


def find_proxy(host: str, *names: str) -> tuple[str, bool] | None:
    """Returns what a message calls the first that a variable names, in either case, and whether it can be used.

    Its URL is not in the message, because it may have a password. None if there is none, or if NO_PROXY has the host.
    """
    from urllib.request import proxy_bypass  # here, because it is slow to import

    variables = [variable for name in names for variable in (name, name.upper()) if os.environ.get(variable)]
    if not variables or proxy_bypass(host):
        return None
    url = os.environ[variables[0]]
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of its port or host
        is_usable = False
    return f"the proxy that {variables[0]} names", is_usable


def call_at_signals(call: Callable[[], object], *names: str) -> None:
    """Calls the function in the running event loop when a signal arrives."""
    for name in names:
        asyncio.get_running_loop().add_signal_handler(signal.Signals[name], call)


def run_until_signal(work: Coroutine[Any, Any, None]) -> None:
    """Runs the coroutine. SIGINT, SIGTERM and SIGHUP cancel it, and the call returns when it has ended."""

    async def run() -> None:
        task = asyncio.ensure_future(work)
        call_at_signals(task.cancel, "SIGINT", "SIGTERM", "SIGHUP")
        await task

    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(run())


def find_install_command(extra: str) -> str:
    """Returns the command that adds the packages of an extra of pyproject.toml to this copy of midtoken.

    It names what this copy was installed from (PEP 610), because no package index has midtoken: whoever registered
    the name there could run code here.
    """
    from importlib.metadata import distributions  # here, because it is slow to import

    records = [each.read_text("direct_url.json") for each in distributions(name="midtoken")]
    origin: dict[str, Any] = next((json.loads(each) for each in records if each), {})
    url = urlsplit(origin.get("url", ""))
    source, place = Path(unquote(url.path)), ""
    if url.scheme != "file" or not source.exists():
        source, place = Path(), " in a checkout of midtoken"
    option = "--editable " if origin.get("dir_info", {}).get("editable") else ""
    return f"{sys.executable or 'python3'} -m pip install {option}{shlex.quote(f'{source}[{extra}]')}{place}"

"""The operator's port, the same for both runtimes: `/health`, `/ready` and `/metrics`. They tell no text.

`/health` says that this process lives, `/ready` that a completion would be answered now, else status 503 and why not.
`/metrics` has the metrics of the engine and, behind them, those of Triton.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from socket import socket

from aiohttp import ClientError, ClientSession, ClientTimeout, UnixConnector, web
from aiohttp.typedefs import Handler

from inference.errors import ServerError
from inference.serving.launcher import ServerOptions, read_metrics
from inference.serving.ports import serve_http
from inference.serving.private_files import make_private_folder, open_folder
from inference.serving.readiness import Readiness
from inference.serving.triton_installation import METRICS

_PROBES = ("/health", "/ready")  # which need no key
_METRICS_TYPE = "text/plain; version=0.0.4"
_TRITON_S = 2.0

FindRefusal = Callable[[Mapping[str, str]], tuple[int, str] | None]  # of a request's headers; 401: its key is not right


@contextlib.asynccontextmanager
async def open_operator_port(
    listener: socket,
    readiness: Readiness,
    triton: ServerOptions | None,
    find_refusal: FindRefusal,
    tls: ssl.SSLContext | None,
) -> AsyncIterator[None]:
    """Answers inside the block. `triton`: where it runs; None: there is none. `find_refusal`: who may not enter."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        refusal = find_refusal(request.headers)
        if refusal and not (refusal[0] == 401 and request.path in _PROBES):
            return _tell(refusal[1], refusal[0])
        return await handler(request)

    async with contextlib.AsyncExitStack() as stack:
        app = web.Application(middlewares=[guard])
        answers: dict[str, Callable[[web.Request], Awaitable[web.Response]]] = {
            "/health": _tell_health,
            "/ready": partial(_tell_readiness, readiness),
            "/metrics": partial(_tell_metrics, readiness, _find_socket(stack, triton) if triton else None),
        }
        for path, answer in answers.items():
            app.router.add_get(path, answer)
        await stack.enter_async_context(serve_http(app, listener, tls))
        yield


def _find_socket(stack: contextlib.AsyncExitStack, triton: ServerOptions) -> Path:
    make_private_folder(triton.state_dir)
    return stack.enter_context(open_folder(triton.state_dir)) / triton.find_socket(METRICS).name


async def _tell_health(_request: web.Request) -> web.Response:
    return _tell("the process lives")


async def _tell_readiness(readiness: Readiness, _request: web.Request) -> web.Response:
    problem = await readiness.find_problem()
    return _tell(problem or "ready", 503 if problem else 200)


async def _tell_metrics(readiness: Readiness, triton: Path | None, _request: web.Request) -> web.Response:
    """Of a server that does not answer, what is left."""
    problem, *texts = await asyncio.gather(
        readiness.find_problem(), _read_engine(readiness.url), _read_triton(triton) if triton else _read_engine("")
    )
    return web.Response(text="".join([write_readiness(problem), *texts]), headers={"Content-Type": _METRICS_TYPE})


def write_readiness(problem: str) -> str:
    """The metric that says whether there is a problem."""
    about = "# HELP midtoken_ready Whether a completion would be answered\n# TYPE midtoken_ready gauge\n"
    return f"{about}midtoken_ready {0 if problem else 1}\n"


async def _read_engine(url: str) -> str:
    with contextlib.suppress(ServerError):
        return await read_metrics(url) if url else ""
    return ""


async def _read_triton(path: Path) -> str:
    with contextlib.suppress(ClientError, TimeoutError):
        connector, limit = UnixConnector(str(path)), ClientTimeout(_TRITON_S)
        async with (
            ClientSession("http://localhost", connector=connector, timeout=limit) as triton,
            triton.get("/metrics") as answer,
        ):
            return await answer.text()
    return ""


def _tell(text: str, status: int = 200) -> web.Response:
    return web.Response(text=f"{text}\n", status=status)

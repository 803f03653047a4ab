import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiohttp import ClientSession, web

from inference.config import EngineConfig
from inference.protocol.arrays import METRICS_ANSWER, to_array
from inference.serving.launcher import ServerOptions
from inference.serving.loopback import find_stranger, listen
from inference.serving.operator_port import FindRefusal, open_operator_port
from inference.serving.readiness import Readiness
from inference.serving.triton_installation import METRICS
from tests.support.fake_triton import build_last_chunk, run_fake_triton, say

_METRIC = "midtoken_requests_running 3.0\n"


@asynccontextmanager
async def _run_port(
    readiness: Readiness, triton: ServerOptions | None, refuse: FindRefusal | None = None, tls: Any = None
) -> AsyncIterator[int]:
    listener = listen(0)
    port = listener.getsockname()[1]
    async with open_operator_port(listener, readiness, triton, refuse or _refuse_strangers, tls):
        yield port


def _refuse_strangers(headers: Mapping[str, str]) -> tuple[int, str] | None:
    stranger = find_stranger(headers)
    return (403, stranger) if stranger else None


async def _get(url: str, headers: Mapping[str, str] = {}, tls: Any = True) -> tuple[int, str]:
    async with ClientSession() as session, session.get(url, headers=headers, ssl=tls) as answer:
        return answer.status, await answer.text()


async def test_it_lives_before_it_is_ready_and_tells_the_metrics_that_there_are(tmp_path: Path) -> None:
    readiness, options = Readiness(), ServerOptions(EngineConfig(tmp_path), tmp_path, tmp_path)
    answer = say(build_last_chunk("x"))

    async def answer_all(call: Any) -> AsyncIterator[Any]:
        if "metrics" in call.arrays:
            yield {METRICS_ANSWER: to_array((_METRIC,), object)}
            return
        async for part in answer(call):
            yield part

    async with _run_port(readiness, options) as port, run_fake_triton(answer_all) as server:
        url = f"http://127.0.0.1:{port}"
        assert await _get(f"{url}/health") == (200, "the process lives\n")
        assert await _get(f"{url}/ready") == (503, "the server is starting\n")
        assert (await _get(f"{url}/metrics"))[1].splitlines()[2:] == ["midtoken_ready 0"]
        readiness.url = server.url
        runner = web.ServerRunner(web.Server(_tell_triton))
        await runner.setup()
        await web.UnixSite(runner, options.find_socket(METRICS)).start()
        assert await _get(f"{url}/ready") == (200, "ready\n")
        lines = (await _get(f"{url}/metrics"))[1].splitlines()
        assert lines[2:] == ["midtoken_ready 1", _METRIC.strip(), "nv_metric 1"]
        await runner.cleanup()
        readiness.end()
        assert (await _get(f"{url}/ready"))[0] == 503


async def _tell_triton(_request: web.BaseRequest) -> web.StreamResponse:
    await asyncio.sleep(0)
    return web.Response(text="nv_metric 1\n")


async def test_metrics_need_the_key_and_probes_do_not_and_both_are_over_tls() -> None:
    authority, tls = trustme.CA(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    trusted = ssl.create_default_context()
    authority.configure_trust(trusted)

    def refuse(headers: Mapping[str, str]) -> tuple[int, str] | None:
        return None if headers.get("Authorization") == "Bearer k" else (401, "no key")

    async with _run_port(Readiness(), None, refuse, tls) as port:
        url = f"https://127.0.0.1:{port}"
        assert (await _get(f"{url}/health", tls=trusted))[0] == 200
        assert (await _get(f"{url}/ready", tls=trusted))[0] == 503
        assert (await _get(f"{url}/metrics", tls=trusted))[0] == 401
        assert (await _get(f"{url}/metrics", {"Authorization": "Bearer k"}, trusted))[0] == 200


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}])
async def test_a_web_page_learns_nothing_from_it(headers: dict[str, str]) -> None:
    async with _run_port(Readiness(), None) as port:
        assert [(await _get(f"http://127.0.0.1:{port}{path}", headers))[0] for path in ("/health", "/metrics")] == [
            403
        ] * 2

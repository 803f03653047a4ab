"""What a web page in a real Chromium can do to a real server through its HTTP and metrics ports: nothing."""

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from inference.serving.loopback import ADDRESS
from tests.support.playground import CHROMIUM, LIBRARY, NODE
from tests.support.servers import RunningServer, make_scripted, run_server, wait_until

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        not (NODE.exists() and LIBRARY.exists() and shutil.which(CHROMIUM)),
        reason="`make test-playground` gets a browser",
    ),
]

# Opens a page of evil.test, a name that means 127.0.0.1, and prints what the expression is there.
_BROWSER = """
import { launch } from "puppeteer-core";
const [chromium, url, expression] = process.argv.slice(1);
const args = ["--no-sandbox", "--host-resolver-rules=MAP evil.test 127.0.0.1"];
const browser = await launch({ executablePath: chromium, args });
try {
  const page = await browser.newPage();
  await page.goto(url);
  console.log(JSON.stringify(await page.evaluate(expression)));
} finally {
  await browser.close();
}
"""

_POSTS = """
Promise.all(["text/plain", "application/x-www-form-urlencoded", "application/json"].flatMap((type) =>
  [BODIES].map(async (body) => {
    const headers = { "Content-Type": type };
    try {
      return (await fetch("URL/v2/models/completion/generate_stream", { method: "POST", MODE headers, body })).status;
    } catch (error) {
      return String(error);
    }
  }),
))
"""
_BODIES = """'{"prefix": "abc"}', "[".repeat(300000), "a=" + "b".repeat(9000000)"""

_FAILED = "TypeError: Failed to fetch"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    """A server with which nothing happens during the test: no process ends, and no model is asked."""
    with run_server(make_scripted(tmp_path), tmp_path / "state", "--probe-interval=1000") as server:
        wait_until(lambda: server.read_metric("nv_inference_request_success") == 3)  # what a start asks the models
        before = _observe(server)
        yield server
        assert _observe(server) == before


def _observe(server: RunningServer) -> tuple[dict[int, str], list[float]]:
    names = ("nv_inference_request_success", "nv_inference_request_failure")
    return server.find_processes(), [server.read_metric(name) for name in names]


def test_a_page_of_another_site_reaches_no_model(server: RunningServer) -> None:
    ports = server.endpoint
    with ThreadingHTTPServer((ADDRESS, 0), BaseHTTPRequestHandler) as site:
        threading.Thread(target=site.serve_forever).start()
        page = f"http://evil.test:{site.server_port}/"
        for port, sees_nothing in ((ports.http_port, 0), (ports.metrics_port, 0), (ports.grpc_port, _FAILED)):
            posts = _POSTS.replace("URL", f"http://{ADDRESS}:{port}")
            assert sees_nothing in _ask_as_page(page, posts.replace("MODE", 'mode: "no-cors",'))
            assert set(_ask_as_page(page, posts.replace("MODE", ""))) == {_FAILED}
        site.shutdown()


def test_a_page_whose_name_is_made_to_mean_this_machine_reaches_no_model(server: RunningServer) -> None:
    for port in (server.endpoint.http_port, server.endpoint.metrics_port):
        statuses = _ask_as_page(f"http://evil.test:{port}/", _POSTS.replace("URL", "").replace("MODE", ""))
        assert set(statuses) == {403}


def _ask_as_page(url: str, expression: str) -> Any:
    """Returns what the expression is on the page at this address."""
    arguments = [shutil.which(CHROMIUM) or "", url, expression.replace("BODIES", _BODIES)]
    done = subprocess.run(
        [str(NODE), "--input-type=module", "-e", _BROWSER, *arguments],
        cwd=LIBRARY.parents[1],
        stdout=subprocess.PIPE,
        timeout=120,
        check=True,
    )
    return json.loads(done.stdout)

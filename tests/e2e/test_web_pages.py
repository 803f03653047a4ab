"""What a web page in a real Chromium can do to a real server through its ports: nothing."""

import json
import subprocess
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from inference.platforms import ADDRESS
from tests.support.browser import CHROMIUM, NODE
from tests.support.playground import LIBRARY
from tests.support.servers import RunningServer, make_scripted, run_server, wait_until

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        not (NODE.exists() and LIBRARY.exists() and CHROMIUM),
        reason="`make test-playground` gets a browser",
    ),
]

# Opens pages of evil.test, a name that means 127.0.0.1, and prints what an expression is on each.
_BROWSER = """
import { launch } from "puppeteer-core";
const [chromium, questions] = process.argv.slice(1);
const args = ["--no-sandbox", "--host-resolver-rules=MAP evil.test 127.0.0.1"];
const browser = await launch({ executablePath: chromium, args });
try {
  const page = await browser.newPage();
  const answers = [];
  for (const [url, expression] of JSON.parse(questions)) {
    await page.goto(url);
    answers.push(await page.evaluate(expression));
  }
  console.log(JSON.stringify(answers));
} finally {
  await browser.close();
}
"""

_POSTS = """
Promise.all(["text/plain", "application/x-www-form-urlencoded", "application/json"].flatMap((type) =>
  ['{"prefix": "abc"}', "[".repeat(300000), "a=" + "b".repeat(9000000)].map(async (body) => {
    const headers = { "Content-Type": type };
    try {
      return (await fetch("URL/v2/models/completion/generate_stream", { method: "POST", MODE headers, body })).status;
    } catch (error) {
      return String(error);
    }
  }),
))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with which nothing happens during the tests: no process ends, and no model is asked."""
    folder = tmp_path_factory.mktemp("server")
    with run_server(make_scripted(folder), folder / "state") as server:
        wait_until(lambda: server.read_metric("midtoken_ready") == 1)
        before = _observe(server)
        yield server
        assert _observe(server) == before


def _observe(server: RunningServer) -> tuple[dict[int, str], float]:
    return server.find_processes(), server.read_metric("midtoken_requests_total")


def test_a_page_of_another_site_reaches_no_model(server: RunningServer) -> None:
    ports = server.endpoint
    with ThreadingHTTPServer((ADDRESS, 0), BaseHTTPRequestHandler) as site:
        threading.Thread(target=site.serve_forever).start()
        page = f"http://evil.test:{site.server_port}/"
        asked = [(page, port, mode) for port in (ports.http_port, ports.grpc_port) for mode in ('mode: "no-cors",', "")]
        answers = dict(zip(asked, _ask_as_pages(asked), strict=True))
        site.shutdown()
    for (_, port, mode), statuses in answers.items():
        if mode and port != ports.grpc_port:
            assert 0 in statuses  # it was sent, and the page sees nothing of the answer
        else:
            assert set(statuses) == {"TypeError: Failed to fetch"}


def test_a_page_whose_name_is_made_to_mean_this_machine_reaches_no_model(server: RunningServer) -> None:
    [statuses] = _ask_as_pages([(f"http://evil.test:{server.endpoint.http_port}/", None, "")])
    assert set(statuses) == {403}


def _ask_as_pages(asked: Sequence[tuple[str, int | None, str]]) -> Any:
    """Returns the statuses that a page at an address gets for posts to a port, by default its own, in a mode."""
    questions = [
        (page, _POSTS.replace("URL", f"http://{ADDRESS}:{port}" if port else "").replace("MODE", mode))
        for page, port, mode in asked
    ]
    done = subprocess.run(
        [str(NODE), "--input-type=module", "-e", _BROWSER, CHROMIUM, json.dumps(questions)],
        cwd=LIBRARY.parents[1],
        stdout=subprocess.PIPE,
        timeout=120,
        check=True,
    )
    return json.loads(done.stdout)

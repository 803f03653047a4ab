"""The completion model over HTTP, as with curl: the application before each host."""

import json
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Generator
from typing import Any

import pytest

from inference.platforms import IMPORT_ROOT
from tests.support.servers import RunningServer, wait_until

pytestmark = pytest.mark.e2e


def _post(server: RunningServer, body: bytes) -> Generator[dict[str, Any], None, None]:
    """Returns the events of the stream. An error is one event, even if its body is not in event-stream format."""
    url = f"{server.endpoint.http_url}/v2/models/completion/generate_stream"
    request = urllib.request.Request(url, data=body, headers={"Content-Type": "application/json"})
    try:
        response = urllib.request.urlopen(request, timeout=30)
    except urllib.error.HTTPError as error:
        response = error
    with response:
        for line in response:
            if line.strip():
                yield json.loads(line.removeprefix(b"data: "))


def test_a_completion_streams_as_events(any_server: RunningServer) -> None:
    events = list(_post(any_server, b'{"prefix": "def main(", "max_tokens": 8}'))
    assert all("text" in event for event in events)
    assert len(events) > 1
    assert ["stats" in event for event in events] == [False] * (len(events) - 1) + [True]
    assert json.loads(events[-1]["stats"])["total_ms"] > 0


def test_other_files_are_told(real_server: RunningServer) -> None:
    told = {"related": ["node.py", "class Node:\n    pass\n", "", "x = 1\n"], "path": "main.py"}
    *_, last = _post(real_server, json.dumps({"prefix": "node = No", "max_tokens": 2, "explain": True} | told).encode())
    assert [file["path"] for file in json.loads(last["explanation"])["related"]] == ["node.py", ""]
    assert json.loads(last["stats"])["num_related_tokens"] > 10


@pytest.mark.parametrize("page", ["docs/http.md", "docs/characters.md"])
def test_each_curl_command_of_a_page_gets_an_answer(real_server: RunningServer, page: str) -> None:
    commands = re.findall(r"^curl (?:.*\\\n)*.*", (IMPORT_ROOT / page).read_text(), re.MULTILINE)
    assert commands
    for command in commands:
        own = command.replace("http://127.0.0.1:8012", real_server.endpoint.http_url)
        answer = subprocess.run(["bash", "-c", f"{own} --fail"], capture_output=True, check=True, text=True).stdout
        assert '"model_version":"1"' in answer or json.loads(answer)["choices"][0]["text"]


def test_stop_accepts_several_strings(real_server: RunningServer) -> None:
    body = {"prefix": "def main(", "max_tokens": 8}
    whole = _read_text(real_server, body)
    assert len(whole) > 12
    for stop in (["never", whole[8:12]], [whole[8:12], "never"]):
        assert _read_text(real_server, body | {"stop": stop}) == whole[: whole.index(whole[8:12])]


def _read_text(server: RunningServer, body: dict[str, Any]) -> str:
    return "".join(event["text"] for event in _post(server, json.dumps(body).encode()))


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"max_tokens": 3}', "invalid request: prefix is missing: the text before the cursor"),
        (b'{"prefix": "a", "max_token": 3}', "invalid request: unknown field 'max_token'; known are prefix, suffix, "),
        (b'{"prefix": "a\xff"}', "invalid request: the body is not UTF-8 at byte 13"),
        (b'{"prefix": "a", "seed": 9223372036854775808}', "invalid request: seed is out of the range of int64"),
        (b'{"prefix": "a", "max_tokens": -1}', "invalid request: max_tokens must be between 1 and 4096, not -1"),
        (b'{"prefix": "a", "num_candidates": 0}', "num_candidates must be between 1 and 16, not 0"),
        (b'{"prefix": "a", "healing": "magic"}', "healing must be one of exact, greedy, single, none, not 'magic'"),
        (b'{"prefix": "a", "extent": "page"}', "extent must be one of single_line, block, unlimited, auto, not 'page'"),
        (b'{"prefix": "a", "top_p": 0}', "top_p must be above 0 and at most 1, not 0.0"),
        (b'{"prefix": "a", "stop": [""]}', "stop takes up to 16 strings, none of them empty"),
        (b'{"prefix": "' + b"a" * (2 * 1024 * 1024 + 1) + b'"}', "prefix has 2097153 bytes; at most 2097152 are taken"),
        (b'{"prefix": "a", "max_tokens": "many"}', "invalid request: max_tokens must be a whole number"),
        (b'{"prefix": ["a", "b"]}', "invalid request: prefix takes one value, not 2"),
        (b'{"prefix": 5}', "invalid request: prefix must be a string"),
        (b'{"prefix": "a", "explain": null}', "invalid request: explain must be true or false"),
        (b'{"prefix": "a", "top_p": true}', "invalid request: top_p must be a number"),
        (b"prefix=a", "invalid request: the body is no JSON"),
        (b'["prefix"]', "invalid request: the body must be a JSON object"),
    ],
)
def test_bad_input_gets_one_error(any_scripted_server: RunningServer, body: bytes, text: str) -> None:
    events = list(_post(any_scripted_server, body))
    assert len(events) == 1
    assert text in events[0]["error"]


def test_a_dropped_connection_cancels_on_the_server(any_scripted_server: RunningServer) -> None:
    next(events := _post(any_scripted_server, b'{"prefix": "slow", "suffix": "dropped"}'))
    events.close()
    wait_until(lambda: "cancelled dropped" in any_scripted_server.events)

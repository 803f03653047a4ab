"""Packages of clients, each as it is published, complete a word in front of the real model: `make test-clients`."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.front_clients import REST, read_sent
from tests.support.servers import RunningServer

_PYTHON = Path("build/clients/bin/python")
# litellm would ask the internet for prices, and langsmith would be told of each call.
_QUIET = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LANGSMITH_TRACING": "false", "NO_PROXY": "*"}

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not _PYTHON.exists(), reason="make test-clients installs them"),
]


@pytest.mark.parametrize("client", ["openai", "ollama", "litellm", "langchain"])
def test_a_package_gets_the_rest_of_the_word(embedded_real_server: RunningServer, client: str) -> None:
    body = read_sent("llama_vim")["body"]
    told = subprocess.run(
        [_PYTHON, "tests/clients/complete.py", client, embedded_real_server.http_url],
        input=json.dumps([body["input_prefix"] + body["prompt"], body["input_suffix"]]),
        env={**os.environ, **_QUIET},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    texts = json.loads(told.stdout.splitlines()[-1])
    assert {name: text.partition("\n")[0] for name, text in texts.items()} == dict.fromkeys(texts, REST)

"""What editors send to the port of `midtoken serve --openai`, with the real model: a cursor inside of a word.

Each file of `tests/support/front_requests` has what one editor sends at `return self._ite`, and says how that is known.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import openai
import pytest
from aiohttp import ClientSession

from inference.protocol.completion import CompletionRequest, Healing
from inference.serving.client import Client
from midtoken.front.asked import Fields, read_completion, read_infill
from tests.support.servers import RunningServer

pytestmark = pytest.mark.e2e

_FOLDER = Path(__file__).parents[1] / "support/front_requests"
_TYPED, _REST = "return self._ite", "ms"


@pytest.mark.parametrize("editor", sorted(path.stem for path in _FOLDER.iterdir()))
async def test_the_word_is_completed_which_a_plain_engine_does_not(any_real_server: RunningServer, editor: str) -> None:
    sent = json.loads((_FOLDER / f"{editor}.json").read_text())
    url, body = f"{any_real_server.front_url}{sent['path']}", sent["body"]
    async with ClientSession(headers=sent["headers"]) as session, session.post(url, json=body) as response:
        assert (response.status, _read_text(await response.text()).partition("\n")[0]) == (200, _REST)
    read = read_infill if sent["path"] == "/infill" else read_completion
    request = read(Fields(body), "", "").completion
    assert request.prefix.endswith(_TYPED)
    assert not (await _complete_plainly(any_real_server, request)).startswith(_REST)


def _read_text(answer: str) -> str:
    """Returns the first text of an answer or of a stream of events, as editors read it."""
    parts = [
        json.loads(line.removeprefix("data: ")) for line in answer.split("\n\n") if line not in ("", "data: [DONE]")
    ]
    first = [part[0] if isinstance(part, list) else part for part in parts]
    return "".join(part["content"] if "content" in part else part["choices"][0]["text"] for part in first)


async def _complete_plainly(server: RunningServer, request: CompletionRequest) -> str:
    async with Client(server.url) as client:
        plain = replace(request, healing=Healing.NONE)
        return "".join([chunk.text async for chunk in client.stream(plain) if chunk.candidate == 0])


async def test_the_openai_package_with_a_real_server(any_real_server: RunningServer) -> None:
    body = json.loads((_FOLDER / "llama_vim.json").read_text())["body"]
    around: Any = {"prompt": body["input_prefix"] + body["prompt"], "suffix": body["input_suffix"], "model": "default"}
    async with openai.AsyncOpenAI(base_url=f"{any_real_server.front_url}/v1", api_key="none") as client:
        assert [model.id async for model in client.models.list()] == ["default"]
        answer = await client.completions.create(**around, n=2, stop="\n")
        assert answer.choices[0].text == _REST != answer.choices[1].text
        events = await client.completions.create(**around, stream=True, stop="\n")
        assert "".join([event.choices[0].text async for event in events]) == _REST
        answer = await client.completions.create(**around, stop="\n")
        assert answer.usage is not None
        assert answer.usage.prompt_tokens_details is not None
        assert answer.usage.prompt_tokens_details.cached_tokens == answer.usage.prompt_tokens > 50
        with pytest.raises(openai.BadRequestError, match="num_candidates must be between 1 and 16, not 17"):
            await client.completions.create(**around, n=17)

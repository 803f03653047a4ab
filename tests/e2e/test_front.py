"""What editors send to the port of `midtoken serve --openai`, with the real model: a cursor inside of a word."""

from dataclasses import replace

import pytest

from inference.protocol.completion import CompletionRequest, Healing
from inference.serving.client import Client
from midtoken.front.asked import Fields, read_completion, read_infill
from tests.support.front_clients import EDITORS, REST, complete_as, read_sent
from tests.support.servers import RunningServer

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("editor", EDITORS)
async def test_the_word_is_completed_which_a_plain_engine_does_not(
    embedded_real_server: RunningServer, editor: str
) -> None:
    assert await complete_as(editor, embedded_real_server.front_url) == REST
    sent = read_sent(editor)
    read = read_infill if sent["path"] == "/infill" else read_completion
    request = read(Fields(sent["body"]), "", "").completion
    assert request.prefix.endswith("return self._ite")
    assert not (await _complete_plainly(embedded_real_server, request)).startswith(REST)


async def _complete_plainly(server: RunningServer, request: CompletionRequest) -> str:
    async with Client(server.url) as client:
        plain = replace(request, healing=Healing.NONE)
        return "".join([chunk.text async for chunk in client.stream(plain) if chunk.candidate == 0])

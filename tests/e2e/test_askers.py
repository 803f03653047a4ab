"""The ways in which the benchmark of latency asks for completions, with a scripted server."""

import pytest

from benchmarks.measures.askers import Asker, GrpcAsker, HttpAsker
from inference.protocol.completion import CompletionRequest, Extent
from inference.serving.client import Client
from tests.support.servers import RunningServer

pytestmark = pytest.mark.e2e


async def test_grpc_and_http_get_the_same_answer(scripted_server: RunningServer) -> None:
    client, http = Client(scripted_server.endpoint.grpc_url), HttpAsker(scripted_server.endpoint)
    askers: tuple[Asker, ...] = (GrpcAsker(client), http)

    answers = [await asker.ask(CompletionRequest("dcba", max_tokens=3, extent=Extent.SINGLE_LINE)) for asker in askers]
    await client.close()
    http.close()

    for answer in answers:
        assert (answer.text, answer.num_tokens, answer.num_forwards, answer.num_context_tokens) == ("abc", 2, 2, 10)
        assert 0 < answer.first_text_ms < answer.total_ms


async def test_http_says_why_a_request_failed(scripted_server: RunningServer) -> None:
    http = HttpAsker(scripted_server.endpoint)

    with pytest.raises(OSError, match="refused by the script"):
        await http.ask(CompletionRequest("refuse"))
    http.close()

"""OpenAI's own package reads what the HTTP port answers."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import openai
import pytest
from openai.types.completion_choice import Logprobs

from inference.protocol.completion import (
    CompletionChunk,
    CompletionRequest,
    Extent,
    FinishReason,
)
from tests.support.front import FrontClient, last_chunk


@pytest.fixture
async def client(front: FrontClient) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{front.url}/v1", api_key="none") as client:
        yield client


async def test_the_openai_package_reads_an_answer_with_text_reason_and_usage(
    front: FrontClient, client: openai.AsyncOpenAI
) -> None:
    sent: Any = {"suffix": "\n", "max_tokens": 8, "user": "ann", "seed": 3, "n": 2, "stop": ["x"], "temperature": 0}
    asking, stream = await front.begin(client.completions.create(model="any", prompt="return Nod", **sent))
    stream.send(CompletionChunk("e", finish_reason=FinishReason.LENGTH))
    stream.send(last_chunk("es", FinishReason.STOP, candidate=1))
    answer = (await asking).model_dump(exclude_unset=True)
    assert answer["choices"] == [
        {"index": 0, "text": "e", "logprobs": None, "finish_reason": "length"},
        {"index": 1, "text": "es", "logprobs": None, "finish_reason": "stop"},
    ]
    cached = {"prompt_tokens_details": {"cached_tokens": 15}}
    assert answer["usage"] == {"prompt_tokens": 20, "completion_tokens": 7, "total_tokens": 27} | cached
    assert (answer["object"], answer["model"], answer["id"][:5]) == ("text_completion", "default", "cmpl-")
    expected: Any = {"max_tokens": 8, "extent": Extent.UNLIMITED, "tenant": stream.request.tenant, "seed": 3}
    assert stream.request == CompletionRequest("return Nod", "\n", stop=("x",), num_candidates=2, **expected)


@pytest.mark.parametrize("number", [0, 1])
async def test_the_openai_package_reads_the_probability_of_each_token(
    front: FrontClient, client: openai.AsyncOpenAI, number: int
) -> None:
    chunks = (
        CompletionChunk("ems()", 0, (3, 5), (-0.5, -0.75)),
        replace(last_chunk(":"), text_ends=(1,), log_probs=(-2,)),
    )
    sent: Any = {"model": "any", "prompt": "a", "logprobs": number}
    top = [{"ems": -0.5}, {"()": -0.25}, {":": -1.25}] if number else None
    asking, stream = await front.begin(client.completions.create(**sent))
    for chunk in chunks:
        stream.send(chunk)
    assert (await asking).choices[0].logprobs == Logprobs(
        tokens=["ems", "()", ":"], token_logprobs=[-0.5, -0.25, -1.25], text_offset=[0, 3, 5], top_logprobs=top
    )
    reading, stream = await front.begin(client.completions.create(stream=True, **sent))
    for chunk in chunks:
        stream.send(chunk)
    assert [event.choices[0].logprobs async for event in await reading] == [
        Logprobs(tokens=["ems", "()"], token_logprobs=[-0.5, -0.25], text_offset=[0, 3], top_logprobs=top and top[:2]),
        Logprobs(tokens=[":"], token_logprobs=[-1.25], text_offset=[5], top_logprobs=top and top[2:]),
    ]

"""Ollama's and llama-server's clients: what they ask reaches the model, and its answer them."""

import json
from pathlib import Path
from typing import Any, cast

import pytest

from inference.protocol.completion import (
    CompletionChunk,
    CompletionRequest,
    Extent,
    FinishReason,
    Priority,
)
from tests.support.front import FrontClient, last_chunk, run_front
from tests.support.tokenizer_folders import add, spec_of, write_folder

_GENERATE, _COMPLETION, _OPENAI = "/api/generate", "/completion", "/v1/completions"
_OLLAMAS = ("/api/tags", "/api/ps", "/api/version")
_QWEN = "<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>"


@pytest.mark.parametrize(
    ("path", "body", "request_fields", "shown"),
    [
        (
            _GENERATE,
            {"prompt": "a", "suffix": "b", "stream": False, "raw": True, "keep_alive": "5m", "context": []}
            | {"options": {"num_predict": 9, "temperature": 0.5, "top_p": 0.9, "seed": 3, "stop": ["x"], "num_ctx": 9}},
            {"suffix": "b", "max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "seed": 3, "stop": ("x",)},
            {"model": "default", "response": "e", "done": True, "done_reason": "stop", "prompt_eval_count": 20}
            | {"total_duration": 37_000_000, "prompt_eval_duration": 12_000_000, "eval_count": 7},
        ),
        (
            _GENERATE,
            {"prompt": _QWEN, "suffix": "", "stream": False, "options": {"num_predict": -2}},
            {"suffix": "b", "max_tokens": 1024},
            {"response": "e"},
        ),
        (
            _COMPLETION,
            {"prompt": _QWEN, "n_predict": 9, "response_fields": ["content", "model", "tokens_evaluated"]},
            {"suffix": "b", "max_tokens": 9},
            {"content": "e", "model": "default", "tokens_evaluated": 20},
        ),
        ("/completions", {"prompt": "a", "max_tokens": 9}, {"max_tokens": 9}, {"content": "e", "stop_type": "eos"}),
    ],
    ids=["Ollama", "Ollama with markers", "llama-server", "llama-server without a limit's name"],
)
async def test_what_a_client_asks_reaches_the_model_and_its_answer_the_client(
    front: FrontClient, path: str, body: object, request_fields: dict[str, Any], shown: dict[str, object]
) -> None:
    request, answer = await front.ask(path, body)
    assert request == CompletionRequest("a", **{"extent": Extent.UNLIMITED, **request_fields})
    assert answer | shown == answer


async def test_a_stream_of_ollamas_is_lines_and_its_errors_are_texts(front: FrontClient) -> None:
    asking, stream = await front.begin(front.post(_GENERATE, {"prompt": "a"}))
    stream.feed("b")
    stream.send(last_chunk("c", FinishReason.LENGTH))
    lines = [json.loads(line) for line in (await asking)[1].splitlines()]
    assert [(each["response"], each["done"]) for each in lines] == [("b", False), ("c", False), ("", True)]
    assert lines[-1]["done_reason"] == "length"
    asking, stream = await front.begin(front.post(_GENERATE, {"prompt": "a"}))
    stream.feed("b")
    stream.fail(ZeroDivisionError("text of a person"))
    last = json.loads((await asking)[1].splitlines()[-1])
    assert last.keys() == {"error"}
    assert "ZeroDivisionError" in last["error"]


async def test_without_a_text_ollama_only_asks_for_the_model(front: FrontClient) -> None:
    body, read = {"model": "default", "stream": False}, last_chunk("", FinishReason.PREFILLED)
    request, answer = await front.ask(_GENERATE, body, read)
    assert (request.priority, answer["response"], answer["done_reason"]) == (Priority.PREFETCH, "", "load")


async def test_several_prompts_are_answered_in_their_order(front: FrontClient) -> None:
    asking, stream = await front.begin(front.post(_OPENAI, {"prompt": ["a", "b"], "n": 2}))
    prefixes = []
    for number in range(2):
        stream = await front.find_stream(number)
        prefixes.append(stream.request.prefix)
        stream.send(CompletionChunk(f"{number}x", 0, finish_reason=FinishReason.STOP))
        stream.send(last_chunk(f"{number}y", FinishReason.LENGTH, candidate=1))
    answer = json.loads((await asking)[1])
    shown = [(each["index"], each["text"], each["finish_reason"]) for each in answer["choices"]]
    assert prefixes == ["a", "b"]
    assert shown == [(0, "0x", "stop"), (1, "0y", "length"), (2, "1x", "stop"), (3, "1y", "length")]
    assert answer["usage"]["total_tokens"] == 54


async def test_several_prompts_of_llama_server_are_a_list_with_the_costs_of_each(front: FrontClient) -> None:
    front.model.answer = "e"
    status, text = await front.post(_COMPLETION, {"prompt": ["a", "b"]})
    results = json.loads(text)
    assert (status, [each["index"] for each in results]) == (200, [0, 1])
    assert all("timings" in each for each in results)


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        (_GENERATE, {"images": ["x"]}, "images is not supported"),
        (_GENERATE, {"format": "json"}, "format is not supported"),
        (_GENERATE, {"system": "x"}, "system is not supported"),
        (_GENERATE, {"logprobs": True}, "logprobs is not supported"),
        (_GENERATE, {"options": {"temperature": 1, "top_k": 3}}, "top_k is not supported"),
        (_GENERATE, {"options": {"num_predict": "x"}}, "num_predict must be a whole number"),
        (_GENERATE, {"options": []}, "options must be an object"),
        (_GENERATE, {"suffix": "x" * (2**21 + 1)}, "suffix has"),
        (_COMPLETION, {"n_probs": 3}, "n_probs is not supported"),
        (_COMPLETION, {"prompt": [1, 2]}, "prompt must be a string"),
        ("/tokenize", {"content": 1}, "content must be a string"),
        ("/tokenize", {"content": "a", "parse_special": False}, "parse_special is not supported"),
    ],
)
async def test_what_a_protocol_has_and_we_do_not_is_refused_by_name(
    front: FrontClient, path: str, body: dict[str, Any], reason: str
) -> None:
    status, text = await front.post(path, {"prompt": "a"} | body)
    error = json.loads(text)["error"]
    assert (status, front.model.streams) == (400, [])
    assert (error if path == _GENERATE else error["message"]).startswith(reason)


async def test_what_a_client_asks_of_the_server_and_its_model(front: FrontClient) -> None:
    answers = {"show": json.loads((await front.post("/api/show", {"model": "default"}))[1])}
    for path in ("/", "/models", "/v1/models", "/v1/models/default", "/props", "/slots", *_OLLAMAS):
        async with front.session.get(f"{front.url}{path}") as response:
            answers[path] = await (response.text() if path == "/" else response.json())
    assert answers["/"] == "Ollama is running"
    assert answers["/models"] == answers["/v1/models"]
    assert [each["id"] for each in answers["/models"]["data"]] == ["default"]
    assert answers["/v1/models/default"] == answers["/models"]["data"][0]
    assert answers["/api/tags"]["models"][0]["name"] == "default"
    assert answers["/api/ps"]["models"][0]["expires_at"] > "2100"
    assert [int(part) for part in answers["/api/version"]["version"].split(".")] >= [0, 6, 4]
    assert answers["/props"]["default_generation_settings"] == answers["/slots"][0]
    assert answers["/slots"][0]["n_ctx"] == answers["show"]["model_info"]["midtoken.context_length"] == 512
    assert ".Suffix" in answers["show"]["template"]  # so Continue sends a suffix
    assert answers["show"]["capabilities"] == ["completion", "insert"]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    "path",
    [
        *("/", "/health", "/props", "/slots", "/models", "/v1/models", "/v1/models/default"),
        *("/v1/models/a/b", *_OLLAMAS),
    ],
)
async def test_a_client_that_asks_whether_a_server_is_there_is_answered(
    front: FrontClient, path: str, method: str
) -> None:
    async with front.session.request(method, f"{front.url}{path}") as response:
        assert (response.status, bool(await response.read())) == (200, method == "GET")


@pytest.mark.parametrize("kind", ["gpt2", "llama2"])
async def test_tokens_are_those_of_the_model_and_their_pieces_the_text(kind: str, tmp_path: Path) -> None:
    spec = spec_of(kind, added=add("<|end|>", special=True), **({"lacks": "ĄñĊ"} if kind == "gpt2" else {}))
    async with run_front(write_folder(tmp_path, spec)) as front:

        async def ask(text: str, **fields: bool) -> list[Any]:
            status, answer = await front.post("/tokenize", {"content": text, **fields})
            assert status == 200
            return cast("list[Any]", json.loads(answer)["tokens"])

        shown = await ask("a é𐞀<|end|>", with_pieces=True)
        assert [each["id"] for each in shown] == await ask("a é𐞀<|end|>")
        pieces = [each["piece"] for each in shown]
        data = b"".join(bytes(each) if isinstance(each, list) else each.encode() for each in pieces)
        assert (data.decode().lstrip(), pieces[-1]) == ("a é𐞀<|end|>", "<|end|>")
        assert any(isinstance(each, list) for each in pieces)  # a part of a character
        assert await ask("\x04\ud83d") == await ask("\ufffd\ufffd" if kind == "gpt2" else "\x04\ufffd")
        assert front.model.streams == []


async def test_another_address_is_told_what_is_served(front: FrontClient) -> None:
    async with run_front(None) as other:  # whose model is elsewhere
        assert (await other.post("/tokenize", {"content": "a"}))[0] == 404
    status, text = await front.post("/api/chat", {})
    assert status == 404
    assert "POST /v1/completions, /infill, /completion" in json.loads(text)["error"]
    async with front.session.get(f"{front.url}/infill") as response:
        assert (response.status, "Served here: GET /health" in await response.text()) == (405, True)

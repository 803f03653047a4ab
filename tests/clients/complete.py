"""Completes a text with a client's own package, in whole and streamed: `complete.py CLIENT URL < TEXTS`.

TEXTS is a JSON list: the text before the cursor, and that after it. Prints a JSON object of what the client returns.
It runs in an environment of its own, which `make test-clients` makes.
"""

import json
import sys
from collections.abc import Callable, Mapping

_MODEL, _KEY, _NUM_TOKENS = "default", "none", 8


def _openai(url: str, before: str, after: str) -> dict[str, str]:
    import openai

    create = openai.OpenAI(base_url=f"{url}/v1", api_key=_KEY).completions.create
    texts = create(model=_MODEL, prompt=[before, before], suffix=after, max_tokens=_NUM_TOKENS).choices
    events = create(model=_MODEL, prompt=before, suffix=after, max_tokens=_NUM_TOKENS, stream=True)
    return {"first": texts[0].text, "second": texts[1].text, "stream": "".join(each.choices[0].text for each in events)}


def _ollama(url: str, before: str, after: str) -> dict[str, str]:
    import ollama

    client = ollama.Client(host=url)
    assert [each.model for each in client.list().models] == [_MODEL]
    assert "insert" in client.show(_MODEL).capabilities
    assert client.generate(_MODEL).done_reason == "load"
    refused = ""
    try:
        client.generate(_MODEL, before, images=[b"x"])
    except ollama.ResponseError as error:
        refused = error.error
    assert refused.startswith("images is not supported"), refused
    options = {"num_predict": _NUM_TOKENS, "temperature": 0, "top_p": 0.9, "seed": 1, "stop": ["\n"]}
    marked = f"<|fim_prefix|>{before}<|fim_suffix|>{after}<|fim_middle|>"
    stream = client.generate(_MODEL, marked, raw=True, stream=True, options=options)
    return {
        "whole": client.generate(_MODEL, before, after, options=options).response,
        "stream": "".join(each.response for each in stream),
    }


def _litellm(url: str, before: str, after: str) -> dict[str, str]:
    import litellm

    sent = {"prompt": before, "suffix": after, "api_base": f"{url}/v1", "api_key": _KEY, "max_tokens": _NUM_TOKENS}
    answer = litellm.text_completion(model=f"text-completion-openai/{_MODEL}", **sent)
    return {"openai": str(answer.choices[0].text)}


def _langchain(url: str, before: str, _after: str) -> dict[str, str]:
    from langchain_ollama import OllamaLLM
    from langchain_openai import OpenAI

    openai = OpenAI(base_url=f"{url}/v1", api_key=_KEY, model=_MODEL, max_tokens=_NUM_TOKENS, temperature=0)
    first, second = openai.generate([before, before]).generations
    ollama = OllamaLLM(base_url=url, model=_MODEL, num_predict=_NUM_TOKENS, temperature=0)
    return {"first": first[0].text, "second": second[0].text, "ollama": ollama.invoke(before)}


_CLIENTS: Mapping[str, Callable[[str, str, str], dict[str, str]]] = {
    "openai": _openai,
    "ollama": _ollama,
    "litellm": _litellm,
    "langchain": _langchain,
}

if __name__ == "__main__":
    client, url = sys.argv[1:]
    print(json.dumps(_CLIENTS[client](url, *json.load(sys.stdin))))

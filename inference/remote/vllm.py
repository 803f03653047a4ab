"""vLLM: named tokens are all that it may choose. Its log probabilities are those before that.

It could tell those of named tokens, too (`logprob_token_ids`), but one of its runners then tells wrong ones to the
requests beside (vllm#51789).
"""

from typing import Any  # parsed JSON

from inference.remote.choice import GeneratedToken
from inference.remote.http_client import parse_token, read_number, read_whole
from inference.remote.probed_server import OutputDelta, ProbedServer, PromptQuery

_ID = "token_id:"  # before a token's number


class VllmServer(ProbedServer):
    """See `RemoteServer`."""

    kind = "vLLM"
    has_adapters = True

    def _build(self, query: PromptQuery) -> tuple[str, dict[str, Any]]:
        body = {"model": self._model, "prompt": list(map(list, query.prompts)), "max_tokens": query.max_tokens}
        if query.allowed_token_ids:
            body["allowed_token_ids"] = list(query.allowed_token_ids)
        if query.wants_scores:
            body |= {"logprobs": query.num_top, "return_tokens_as_token_ids": True}
        return "v1/completions", {**body, **query.sampling, "return_token_ids": not query.wants_scores}

    def _parse(self, event: dict[str, Any]) -> list[OutputDelta]:
        return [self._parse_choice(choice) for choice in event["choices"]]

    def _parse_choice(self, choice: dict[str, Any]) -> OutputDelta:
        scores = choice["logprobs"] or {"tokens": (), "token_logprobs": (), "top_logprobs": ()}
        written = [*map(parse_token, map(_read_id, scores["tokens"]), scores["token_logprobs"])]
        written = written or [GeneratedToken(read_whole(token_id), None) for token_id in choice.get("token_ids") or ()]
        top: dict[str, object] = next(iter(scores["top_logprobs"]), {})
        log_probs = {_read_id(token): read_number(value) for token, value in top.items()}
        prompt, echo = read_whole(choice["index"]), choice.get("prompt_token_ids")
        return OutputDelta(prompt, written, log_probs, choice["finish_reason"], echo)


def _read_id(token: str) -> int:
    return int(token.removeprefix(_ID))

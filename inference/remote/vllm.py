"""vLLM: named tokens are all that it may choose. Its log probabilities are those before that.

It could tell those of named tokens, too (`logprob_token_ids`), but one of its runners then tells wrong ones to the
requests beside (vllm#51789).
"""

from typing import Any  # parsed JSON

from inference.remote.http_client import read_number, read_whole
from inference.remote.measured_server import MeasuredServer, Question, Step

_ID = "token_id:"  # before a token's number


class VllmServer(MeasuredServer):
    """See `RemoteServer`."""

    kind = "vLLM"

    def _build(self, question: Question) -> tuple[str, dict[str, Any]]:
        body = {"model": self._model, "prompt": list(map(list, question.rows)), "max_tokens": question.max_tokens}
        if question.among:
            body["allowed_token_ids"] = list(question.among)
        if question.wants_scores:
            body |= {"logprobs": question.num_top, "return_tokens_as_token_ids": True}
        return "v1/completions", {**body, **question.sampling, "return_token_ids": not question.wants_scores}

    def _parse(self, event: dict[str, Any]) -> list[Step]:
        return [self._parse_choice(choice) for choice in event["choices"]]

    def _parse_choice(self, choice: dict[str, Any]) -> Step:
        scores = choice["logprobs"] or {"tokens": (), "top_logprobs": [{}]}
        token_ids = [*map(read_whole, choice.get("token_ids") or map(_read_id, scores["tokens"]))]
        log_probs = {_read_id(token): read_number(value) for token, value in scores["top_logprobs"][0].items()}
        row, echo = read_whole(choice["index"]), choice.get("prompt_token_ids")
        return Step(row, token_ids, log_probs, choice["finish_reason"], echo)


def _read_id(token: str) -> int:
    return int(token.removeprefix(_ID))

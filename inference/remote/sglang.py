"""SGLang: it tells the log probabilities of named tokens, whatever it chooses.

A bias would change what it tells, so none is sent. Nobody has run it with a real server.
"""

from collections.abc import Sequence
from typing import Any  # parsed JSON

from inference.remote.choice import GeneratedToken
from inference.remote.http_client import parse_token, read_number, read_whole
from inference.remote.probed_server import OutputDelta, ProbedServer, PromptQuery


class SglangServer(ProbedServer):
    """See `RemoteServer`."""

    kind = "SGLang"

    def _build(self, query: PromptQuery) -> tuple[str, dict[str, Any]]:
        body: dict[str, Any] = {
            "model": self._model,  # for a router
            "input_ids": list(map(list, query.prompts)),
            "sampling_params": {"max_new_tokens": query.max_tokens, **query.sampling},
            "return_prompt_token_ids": not query.wants_scores,
        }
        if query.wants_scores:
            body |= {"return_logprob": True, "top_logprobs_num": query.num_top}
        if query.allowed_token_ids:
            body["token_ids_logprob"] = [list(query.allowed_token_ids)]
        return "generate", body

    def _parse(self, event: dict[str, Any]) -> list[OutputDelta]:
        meta, token_ids = event["meta_info"], [*map(read_whole, event["output_ids"])]
        places = meta.get("output_token_ids_logprobs") or meta.get("output_top_logprobs") or [()]
        log_probs = {read_whole(token_id): read_number(value) for value, token_id, _ in places[0] or ()}
        end, is_cumulative = meta["finish_reason"], len(token_ids) == read_whole(meta["completion_tokens"])
        echo = event.get("prompt_token_ids")
        prompt, written = (
            read_whole(event.get("index", 0)),
            _parse_token(token_ids, meta.get("output_token_logprobs") or ()),
        )
        return [OutputDelta(prompt, written, log_probs, end and end["type"], echo, is_cumulative)]


def _parse_token(token_ids: list[int], places: Sequence[tuple[object, object, object]]) -> list[GeneratedToken]:
    """The tokens of an event. Of tokens and places, each may be all so far, or those that are new."""
    reported = [parse_token(token_id, value) for value, token_id, _ in places][-len(token_ids) or len(places) :]
    written = [*(GeneratedToken(each, None) for each in token_ids[: len(token_ids) - len(reported)]), *reported]
    if [each.token_id for each in written] != token_ids:
        raise ValueError("the log probabilities are those of other tokens")
    return written

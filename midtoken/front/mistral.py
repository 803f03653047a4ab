"""Mistral's `/v1/fim/completions`, whose answer has the form of a chat's."""

from collections.abc import Iterator, Mapping

from inference.protocol.completion import CompletionChunk
from midtoken.front.form import DONE, NAMES, Form, Texts
from midtoken.front.parsed_request import Fields, ParsedRequest, SplitPrompt, build_request


def read_completion(fields: Fields) -> ParsedRequest:
    """Reads a request. Raises InvalidRequestError. The prompt has no markers, because the suffix has its own field."""
    fields.refuse({"min_tokens": (0,)})
    fields = fields.update({"seed": fields.take("random_seed", -1)})
    prompt = SplitPrompt(fields.take("prompt", ""), fields.take("suffix", ""))
    return build_request(fields, [prompt])


class FimForm(Form):
    """Writes one answer."""

    names: Mapping[str, str] = {**NAMES, "seed": "random_seed"}

    def write_whole(self, texts: Texts) -> object:
        """See `Form`."""
        message = {"role": "assistant", "content": texts.texts[0].text, "tool_calls": None, "prefix": False}
        choice = {"index": 0, "message": message, "finish_reason": texts.name_end(0)}
        return {**self._head, "object": "chat.completion", "choices": [choice], "usage": texts.write_usage()}

    def write_event(self, chunk: CompletionChunk, texts: Texts) -> object:
        """See `Form`."""
        delta = {"role": "assistant", "content": chunk.text}
        choice = {"index": 0, "delta": delta, "finish_reason": texts.name_end(0) if chunk.finish_reason else None}
        usage = {"usage": texts.write_usage()} if chunk.is_last else {}
        return {**self._head, "object": "chat.completion.chunk", "choices": [choice], **usage}

    def write_end(self, _texts: Texts) -> Iterator[object]:
        """See `Form`."""
        yield DONE

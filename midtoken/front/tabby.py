"""Tabby's `/v1/completions` and `/v1/health`. Its answer to the first is OpenAI's."""

import platform
from importlib.metadata import version

from midtoken.front.parsed_request import (
    Fields,
    ParsedRequest,
    SplitPrompt,
    build_request,
    read_file_name,
    read_files,
)

_NUM_TOKENS = 64  # Tabby's default
_OTHERS = (  # the most important first
    "declarations",
    "relevant_snippets_from_changed_files",
    "relevant_snippets_from_recently_opened_files",
)
_NOT_OFFERED = {"mode": ("standard",), "debug_options": ({},)}


def read_completion(fields: Fields) -> ParsedRequest:
    """Reads a request with `segments`. Raises InvalidRequestError. The clipboard in it is not read."""
    fields.refuse(_NOT_OFFERED)
    segments = Fields({f"segments.{name}": value for name, value in fields.take("segments", {}).items()})
    related = tuple([each for name in _OTHERS for each in read_files(segments, f"segments.{name}", "filepath", "body")])
    before, after = (segments.take(f"segments.{name}", "") for name in ("prefix", "suffix"))
    prompt = SplitPrompt(before, after, related, read_file_name(segments, "segments.filepath"))
    return build_request(fields, [prompt], _NUM_TOKENS)


def write_health(model: str) -> object:
    """Returns the answer of a server whose model answers. llama-server's is `status`."""
    build = {"build_date": "", "build_timestamp": "", "git_sha": "", "git_describe": version("midtoken")}
    return {
        "status": "ok",
        "model": model,
        "device": "cpu",
        "arch": platform.machine(),
        "cpu_info": "",
        "cpu_count": 1,
        "cuda_devices": [],
        "version": build,
    }

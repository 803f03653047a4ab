"""How a request of an editor is parsed, and what of it is refused."""

import json
import math
import re

import pytest

from inference.errors import (
    InvalidRequestError,
)
from inference.protocol.completion import CompletionRequest, RelatedFile
from midtoken.http.parsed_request import split_prompt
from tests.support.front import FrontClient, last_chunk

_COMPLETION, _INFILL = "/v1/completions", "/infill"


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        (_COMPLETION, {"logprobs": 2}, "logprobs must be 0 or 1 here, not 2"),
        (_COMPLETION, {"logprobs": -1}, "logprobs must be 0 or 1 here, not -1"),
        (_COMPLETION, {"logprobs": 1, "temperature": 0.5}, "logprobs must be 0 here, not 1"),
        (_COMPLETION, {"logprobs": 1, "n": 2}, "logprobs must be 0 here, not 1"),
        (_COMPLETION, {"logprobs": True}, "logprobs must be a whole number, not 'True'"),
        (_COMPLETION, {"confidence": 1.1}, "confidence must be a number from 0 to 1, not 1.1"),
        (_INFILL, {"confidence": math.nan}, "confidence must be a number from 0 to 1, not nan"),
        (_INFILL, {"confidence": "high"}, "confidence must be a number, not 'high'"),
        (_INFILL, {"presence_penalty": 0.5}, "presence_penalty is not supported"),
        (_INFILL, {"lora": [{"id": 0}]}, "lora is not supported"),
        (_COMPLETION, {"temperature": 0.5, "top_k": 40}, "top_k is not supported"),
        (_COMPLETION, {"temperature": "hot"}, "temperature must be a number, not 'hot'"),
        (_INFILL, {"temperature": 11}, "temperature must be between 0.0 and 10.0, not 11.0"),
        (_COMPLETION, {"stream": 1}, "stream must be true or false, not '1'"),
        (_COMPLETION, {"stop": ["a", 1]}, "stop must be a string or a list of strings, not \"['a', 1]\""),
        (_INFILL, {"n": True}, "n must be a whole number, not 'True'"),
        (_COMPLETION, {"user": "x" * 2000}, "user has 2000 bytes"),
        (_COMPLETION, {"n": 17}, "n must be between 1 and 16, not 17"),
        (_INFILL, {"n_cmpl": 17}, "n or n_cmpl must be between 1 and 16, not 17"),
        *(
            (path, {name: -3}, f"{name} must be 0 or more, or -1 for no limit, not -3")
            for path in (_COMPLETION, _INFILL)
            for name in ("max_tokens", "max_completion_tokens", "n_predict", "max_new_tokens", "num_predict")
        ),
        (_COMPLETION, {"max_new_tokens": "9"}, "max_new_tokens must be a whole number, not '9'"),
        (_COMPLETION, {"max_tokens": 9.5}, "max_tokens must be a whole number, not '9.5'"),
        (_COMPLETION, {"prompt": "x" * (2**21 + 1)}, "prompt has 2097153 bytes"),
        (_INFILL, {"input_prefix": "x" * (2**21 + 1)}, "the text before the cursor has 2097154 bytes"),
        (_INFILL, {"input_suffix": "x" * (2**21 + 1)}, "input_suffix has 2097153 bytes"),
        (_INFILL, {"id_slot": 10**2000}, "the session has 20"),
        (_INFILL, {"input_extra": ["a"]}, "input_extra must be a list of objects, not of 'a'"),
        (_INFILL, {"input_extra": [{"text": 1}]}, "input_extra.text must be a string, not '1'"),
        (_INFILL, {"input_extra": [{"filename": "x" * 257}]}, "input_extra.filename has 257 characters"),
        (_INFILL, [], "the body must be an object, not '[]'"),
        (_COMPLETION, b"{", "the body is no JSON"),
        (_INFILL, b"[" * 100_000, "the body is no JSON"),
        (_INFILL, b'{"prompt": "a\xff"}', "the body is not UTF-8 at byte 13"),
        (_COMPLETION, {"prompt": [1, 2]}, "prompt must be a string"),
        (_INFILL, {"prompt": [1, 2]}, "prompt must be a string"),
        (_COMPLETION, {"prompt": ["a"] * 65}, "prompt must be 1 to 64 texts, not 65"),
    ],
)
async def test_what_is_not_offered_is_refused_by_name(front: FrontClient, path: str, body: object, reason: str) -> None:
    status, text = await front.post(path, {"prompt": "a"} | body if isinstance(body, dict) else body)
    error = json.loads(text)["error"]
    assert (status, error["code"], error["type"]) == (400, 400, "invalid_request_error")
    assert error["message"].startswith(reason)
    assert front.model.streams == []


@pytest.mark.parametrize("path", [_COMPLETION, _INFILL, "/completion", "/api/generate"])
@pytest.mark.parametrize(
    ("limits", "most"),
    [
        *(({name: 9}, 9) for name in ("max_tokens", "max_completion_tokens", "n_predict", "max_new_tokens")),
        ({"num_predict": 9.0}, 9),
        ({"max_tokens": 9, "max_completion_tokens": 7}, 7),
        ({"max_tokens": -1, "n_predict": 7}, 7),
        ({"max_tokens": None, "num_predict": 7}, 7),
        ({"max_tokens": -1}, 1024),
        ({"num_predict": -2}, 1024),
        ({"n_predict": 10**30}, 1024),
    ],
    ids=str,
)
async def test_a_limit_has_the_name_and_the_meaning_that_any_protocol_gives_it(
    front: FrontClient, path: str, limits: dict[str, object], most: int
) -> None:
    asking, stream = await front.begin(front.post(path, {"prompt": "a", **limits}))
    stream.send(last_chunk("e"))
    assert ((await asking)[0], stream.request.max_tokens) == (200, most)


@pytest.mark.parametrize("path", [_COMPLETION, _INFILL, "/completion", "/api/generate"])
@pytest.mark.parametrize("body", [b'{"prompt": "a\\ud83d"}', b'{"prompt": "a\xed\xa0\xbd"}'], ids=["escaped", "raw"])
async def test_half_a_surrogate_pair_is_u_fffd(front: FrontClient, path: str, body: bytes) -> None:
    asking, stream = await front.begin(front.post(path, body))
    stream.send(last_chunk("e"))
    assert ((await asking)[0], stream.request.prefix) == (200, "a\ufffd")


_WITH_MARKERS = (  # programs and pages, in which they are text
    'PRE = "<PRE>"\nSUF = "<SUF>"\nNod',
    'ALL = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")\nNod',
    'prompt = f"<PRE> {a} <SUF>{b} <MID>"\nNod',
    "# of [PREFIX] and [SUFFIX]\nNod",
    "a[PREFIX] = b\n[SUFFIX]\nNod",
    "std::tuple<MID> a;\nB<SUF> b;\nC<PRE> Nod",
)
_QWEN = "<|fim_prefix|>{before}<|fim_suffix|>{after}<|fim_middle|>"


@pytest.mark.parametrize(
    ("prompt", "before", "after"),
    [
        (_QWEN.format(before="a\nNod", after="\nb"), "a\nNod", "\nb"),
        ("<|fim_prefix|><|fim_suffix|>\nb<|fim_middle|>a\nNod", "a\nNod", "\nb"),
        ("<[fim-suffix]>\nb<[fim-prefix]>a\n<[fim-middle]>Nod", "a\nNod", "\nb"),
        ("[SUFFIX]\nb[PREFIX]a\nNod", "a\nNod", "\nb"),
        ("<PRE> a\nNod <SUF>\nb <MID>", "a\nNod", "\nb"),
        ("▁<AIX-SPAN-PRE>▁<AIX-SPAN-POST>\nb▁<AIX-SPAN-MIDDLE>a\nNod", "a\nNod", "\nb"),
        (" <PRE> a\nNod <SUF>\nb <MID>", "a\nNod", "\nb"),
        ("<PRE> a <SUF> b)\n <MID>", "a", " b)\n"),
        ("<PRE>     a =  <SUF> \nb <MID>", "    a = ", "\nb"),
        ("<PRE># c \na\nNod <SUF> \nb\n <MID>", "# c \na\nNod", "\nb\n"),
        ("<PRE> \n# c\nNod <SUF> b <MID>", "\n# c\nNod", "b"),
        ("<PRE>a\nNod <SUF> \nb<MID>", "a\nNod ", " \nb"),
        ("<PRE>    Nod<SUF> )<MID>", "    Nod", " )"),
        ("<s><｜fim▁begin｜>a\nNod<｜fim▁hole｜>\nb<｜fim▁end｜>", "a\nNod", "\nb"),
        (_QWEN.format(before="a\nNod", after="\nb") + " \n", "a\nNod", "\nb"),
        (_QWEN.format(before="a\n", after="\nb") + "    ", "a\n    ", "\nb"),
        ("if '<|fim_prefix|>' in Nod", "if '<|fim_prefix|>' in Nod", ""),
        ("a = '<|im_start|>' + '<fim_middle>'\nNod", "a = '<|im_start|>' + '<fim_middle>'\nNod", ""),
        ("a <PRE> b\n<HR>", "a <PRE> b\n<HR>", ""),
        *((text, text, "") for text in _WITH_MARKERS),
        ("fn f(a: Box<[u8]>", "fn f(a: Box<[u8]>", ""),
    ],
)
def test_a_prompt_with_markers_is_taken_apart(prompt: str, before: str, after: str) -> None:
    assert split_prompt(prompt) == CompletionRequest(before, after)


@pytest.mark.parametrize(
    ("others", "related", "path"),
    [
        ("<|repo_name|>r\n<|file_sep|>c.py\nc\n<|file_sep|>d.py\n", (RelatedFile("c.py", "c\n"),), "d.py"),
        ("<|file_separator|>c.py\nc\n<|file_separator|>d.py\n", (RelatedFile("c.py", "c\n"),), "d.py"),
        ("<file_sep>c.py\nc\n<file_sep>", (RelatedFile("c.py", "c\n"),), ""),
        ("# c.py\nc\n", (RelatedFile("", "# c.py\nc\n"),), ""),
        (" \n", (), ""),
    ],
)
def test_files_before_the_markers_are_related_files(others: str, related: tuple[RelatedFile, ...], path: str) -> None:
    prompt = others + _QWEN.format(before="a", after="b")
    assert split_prompt(prompt) == CompletionRequest("a", "b", related=related, path=path)


@pytest.mark.parametrize("end", ["a\nNod", "\n    ", ""])
@pytest.mark.parametrize(
    ("files", "related"),
    [
        ("<|repo_name|>r\n<|file_sep|>c.py\nc\n<|file_sep|>d.py\n", (RelatedFile("c.py", "c\n"),)),
        ("<|file_separator|>c.py\nc\n<|file_separator|>d.py\n", (RelatedFile("c.py", "c\n"),)),
        ("<repo_name>r<file_sep>c.py\nc\n<file_sep>d.py\n", (RelatedFile("c.py", "c\n"),)),
        ("<reponame>r<filename>c.py\n<b/>\n<filename>d.py\n", (RelatedFile("c.py", "<b/>\n"),)),
        ("<|begin_of_text|><|file_sep|>d.py\n", ()),
    ],
)
def test_of_files_alone_the_last_is_completed(files: str, related: tuple[RelatedFile, ...], end: str) -> None:
    assert split_prompt(files + end) == CompletionRequest(end, related=related, path="d.py")


@pytest.mark.parametrize(
    ("prompt", "reason"),
    [
        ("<|user|>\n<|code_suffix|>b<|code_prefix|>a<|code_middle|><|assistant|>\n", "has the marker '<|user|>'"),
        ("<|code_suffix|>b<|code_prefix|>a<|code_middle|><|assistant|>\n", "has the marker '<|assistant|>'"),
        ("<|current_file_content|>\n<|code_to_edit|>\na<|/code_to_edit|>", "marker '<|current_file_content|>'"),
        ("<|editable_region_start|>a<|user_cursor_is_here|><|editable_region_end|>", "'<|editable_region_start|>'"),
        ("<｜User｜>a\n<｜Assistant｜>", "has the marker '<｜User｜>'"),
        ("# a\n<|im_start|>user\na", "has the marker '<|im_start|>'"),
        ("a<|fim_prefix|>", "has <|fim_prefix|>, but no <|fim_suffix|>"),
        ("[PREFIX]a\nNod", "has [PREFIX], but no [SUFFIX]"),
        ("<PRE> a\nNod", "has <PRE>, but no <SUF>"),
        ("c\n<file_sep>d.py\nNod", "has the marker '<file_sep>'"),
        ("<file_sep>def Nod", "ends in the path behind a file marker"),
        ("<|repo_name|>r\nNod", "has the marker '<|repo_name|>'"),
        ("<|file_sep|>d.py\nNod\n<|cursor|>", "has the marker '<|cursor|>'"),
        ("<|file_sep|>original/c.py\na\n<|file_sep|>current/c.py\na\n<|file_sep|>updated/c.py\n", "format of Sweep"),
        ("<QUERY>\na{{FILL_HERE}}b\n</QUERY>\n<COMPLETION>", "format of hole filling"),
        ("a[BLANK]b\nFill in the blank to complete the code block.", "format of filling a blank"),
        ("a<|fim_suffix|>b<|fim_middle|>", "has <|fim_suffix|>, but no <|fim_prefix|>"),
        ("<PRE> a <SUF>b", "has <PRE>, but no <MID>"),
        ('ALL = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>', "has <|fim_prefix|>, but within a line"),
        ("[INST] <PRE> a <SUF>b <MID>", "has <PRE>, but within a line"),
        ('"""\n<fim_prefix>a<fim_suffix>b<fim_middle>\n"""\nNod', "has the marker '<fim_prefix>'"),
    ],
)
def test_a_prompt_in_an_unknown_format_or_without_a_marker_is_refused_by_name(prompt: str, reason: str) -> None:
    with pytest.raises(InvalidRequestError, match=re.escape(reason)):
        split_prompt(prompt)


async def test_a_marker_in_the_text_of_a_prompt_with_markers_is_refused_and_with_a_suffix_it_is_text(
    front: FrontClient,
) -> None:
    prompt = _QWEN.format(before="a = '<|fim_suffix|>'", after="")
    with pytest.raises(InvalidRequestError, match="send prompt and suffix as separate fields"):
        split_prompt(prompt)
    request, _ = await front.ask(_COMPLETION, {"prompt": prompt, "suffix": ""})
    assert (request.prefix, request.suffix) == (prompt, "")

"""A `tokenizer.json`, read and checked: every part that exact healing does not support is refused by its name.

Parts that change nothing for us are left out: truncation, padding, the decoder, and the post-processor but for the
tokens that it puts before a text. `trim_offsets` moves only offsets, which are not used.
"""

import json
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from tokenizers import Tokenizer
from tokenizers.normalizers import Normalizer
from tokenizers.pre_tokenizers import PreTokenizer

from inference.errors import ModelError, refuse
from inference.healing.vocabulary_file import AddedToken, iter_steps, read_added_tokens
from inference.model_folder import find_tokenizer_file, read_object

BLANK_MARK = "▁"  # SentencePiece's mark for a blank

_MARK_STEPS = (  # of normalizers: they write blanks as marks, and one before the text
    {"type": "Replace", "pattern": {"String": " "}, "content": BLANK_MARK},
    {"type": "Prepend", "prepend": BLANK_MARK},
)
_Json = Any  # the content of the file, whose parts have many shapes
_P = ParamSpec("_P")
_Result = TypeVar("_Result")

_MAX_MERGES = 16  # for each token, which may be made of two others in several ways
_DROPPING_STEPS = ("Whitespace", "WhitespaceSplit", "BertPreTokenizer", "CharDelimiterSplit")


@dataclass(frozen=True, slots=True)
class TokenizerFile:
    """The parts of a `tokenizer.json` that exact healing uses."""

    spec: _Json  # the file's content
    tokenizer: Tokenizer  # all of it, without truncation and padding
    normalizer: Normalizer | None  # NFC, or a sequence with it; the blank marks of SentencePiece are left out
    pre_tokenizer: PreTokenizer | None  # without the blank that it may put before a text
    splitter: PreTokenizer | None  # its steps before a last one that only writes bytes as characters, if it has them
    added_texts: tuple[tuple[AddedToken, ...], ...]  # found in the text one tuple after the other
    control_ids: frozenset[int]  # of control tokens that the model's own vocabulary contains
    patterns: tuple[str, ...]  # of the steps that split the text
    merges: Sequence[Sequence[str]]  # pairs; none for byte-level BPE, which needs no look at them
    is_sentencepiece: bool

    def find_start_ids(self) -> tuple[int, ...]:
        """The ids that the post-processor puts before a text."""
        with_marks = self.tokenizer.encode("a").ids
        bare = self.tokenizer.encode("a", add_special_tokens=False).ids
        starts = range(len(with_marks) - len(bare) + 1)
        start = next((start for start in starts if with_marks[start : start + len(bare)] == bare), 0)
        return tuple(with_marks[:start])

    def build_plain(self) -> Tokenizer:
        """The tokenizer without control tokens, which encodes text that looks like one as text.

        An added text may have another id than in the file, but the same content.
        """
        plain = Tokenizer(self.tokenizer.model)
        for part in ("normalizer", "pre_tokenizer"):
            if getattr(self.tokenizer, part) is not None:
                setattr(plain, part, getattr(self.tokenizer, part))
        texts = {token.token_id for tokens in self.added_texts for token in tokens}
        plain.add_tokens([added for i, added in self.tokenizer.get_added_tokens_decoder().items() if i in texts])
        return plain


def read_tokenizer_file(model_dir: Path) -> TokenizerFile:
    """The folder's `tokenizer.json`. Raises ModelError if it cannot be read or exact healing does not support it."""
    spec = read_object(find_tokenizer_file(model_dir))
    with naming_file(model_dir):
        return parse_tokenizer_file(spec)


@contextmanager
def naming_file(model_dir: Path) -> Iterator[None]:
    """Inside the context, a refusal gets the path of the file."""
    try:
        yield
    except ModelError as error:
        raise ModelError(f"{model_dir / 'tokenizer.json'}: {error}") from None


def parse_tokenizer_file(spec: _Json) -> TokenizerFile:
    """The parts of a `tokenizer.json`. Raises ModelError."""
    try:
        added = read_added_tokens(spec)
        is_sentencepiece = bool(spec["model"].get("byte_fallback"))
        _check_model(spec["model"])
        _check_normalizer(spec, is_sentencepiece)
        _check_pre_tokenizer(spec, is_sentencepiece)
        _check_added_texts(spec, [token for token in added if not token.is_control], is_sentencepiece)
        normalizer, pre_tokenizer, splitter = _build_steps(spec, is_sentencepiece)
    except (AttributeError, KeyError, TypeError) as error:
        raise ModelError(f"not as the tokenizers library writes it: {error!r}") from None
    tokenizer = _build(json.dumps(spec))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    pairs = [(token, tokenizer.token_to_id(token.content)) for token in added]
    refuse(ModelError, {
        f"added token {token.content!r} has the id {token.token_id} in the file, but {found} in the library": (
            found != token.token_id
        )
        for token, found in pairs
    })  # fmt: skip
    vocab, merges = spec["model"]["vocab"], spec["model"]["merges"] if is_sentencepiece else ()
    return TokenizerFile(
        spec,
        tokenizer,
        normalizer,
        pre_tokenizer,
        splitter,
        _group_added_texts(spec, added, is_sentencepiece),
        frozenset(token.token_id for token in added if token.is_control and vocab.get(token.content) == token.token_id),
        tuple([str(pattern) for step in iter_steps(spec.get("pre_tokenizer")) for pattern in _find_pattern(step)]),
        [merge.split(" ") if isinstance(merge, str) else merge for merge in merges],
        is_sentencepiece,
    )


def _adds_blank(spec: _Json) -> bool:
    """True if a normalizer or pre-tokenizer step of the file puts a blank before a text."""
    return any(
        step.get("add_prefix_space") or step["type"] == "Prepend" or step.get("prepend_scheme", "never") != "never"
        for part in ("normalizer", "pre_tokenizer")
        for step in iter_steps(spec.get(part))
    )


def refusing_panics(call: Callable[_P, _Result]) -> Callable[_P, _Result]:
    """The same function. A panic of the tokenizers library, which is no Exception, raises ModelError.

    Its text is omitted, since it may have a part of what was to be encoded.
    """

    @wraps(call)
    def call_safely(*args: _P.args, **named: _P.kwargs) -> _Result:
        try:
            return call(*args, **named)
        except BaseException as error:
            if type(error).__name__ == "PanicException":
                raise ModelError("the tokenizers library fails on a text; a pattern of it may need too long") from None
            raise

    return call_safely


@refusing_panics
def _build(content: str) -> Tokenizer:
    try:
        return Tokenizer.from_str(content)
    except Exception as error:  # the tokenizers library raises no other
        raise ModelError(f"the tokenizers library cannot load it: {error}") from None


def _check_model(model: _Json) -> None:
    kind, dropout = model.get("type", "BPE"), model.get("dropout")
    odd = next((name for name in ("continuing_subword_prefix", "end_of_word_suffix") if model.get(name)), None)
    num_merges, num_tokens = len(model.get("merges", ())), len(model.get("vocab", ()))
    refuse(ModelError, {
        f"model type {kind} is not supported; midtoken needs BPE, of bytes or with byte_fallback": kind != "BPE",
        f"model has {num_merges} merges for {num_tokens} tokens, of which a real one has two or three for each": (
            num_merges > _MAX_MERGES * num_tokens  # each takes microseconds, and nothing else bounds their time
        ),
        f"model dropout is {dropout}: the same text would get other tokens each time": dropout,
        f"model {odd} is {model.get(odd)!r}, which is not supported: its tokens are no plain text": odd,
        "model has both byte_fallback and ignore_merges, which is not supported together": (
            model.get("byte_fallback") and model.get("ignore_merges")
        ),
    })  # fmt: skip


def _check_normalizer(spec: _Json, is_sentencepiece: bool) -> None:
    """Refuses every step that changes the typed text, but NFC in byte-level BPE and the marks of SentencePiece."""
    steps = list(iter_steps(spec.get("normalizer")))
    for step in steps:
        if step not in (_MARK_STEPS if is_sentencepiece else ({"type": "NFC"},)):
            raise ModelError(f"normalizer {_describe(step)} changes the typed text, so it is not supported")
    steps += iter_steps(spec.get("pre_tokenizer"))
    if is_sentencepiece and not any(step["type"] in ("Replace", "Metaspace") for step in steps):
        raise ModelError("model has byte_fallback, but no normalizer or pre_tokenizer step writes a blank as '▁'")


def _check_pre_tokenizer(spec: _Json, is_sentencepiece: bool) -> None:
    """Refuses every step that drops characters, and byte-level BPE that has no step to write bytes."""
    steps = list(iter_steps(spec.get("pre_tokenizer")))
    for step in steps:
        if step["type"] in _DROPPING_STEPS or (step.get("behavior") == "Removed" and not step["invert"]):
            raise ModelError(f"pre_tokenizer {_describe(step)} drops characters of the text, so it is not supported")
    if not is_sentencepiece and all(step["type"] != "ByteLevel" for step in steps):
        raise ModelError("pre_tokenizer has no step ByteLevel, and model has no byte_fallback: some text has no tokens")


def _check_added_texts(spec: _Json, texts: list[AddedToken], is_sentencepiece: bool) -> None:
    for token in texts:
        if token.flags:
            raise ModelError(f"added token {token.content!r} is text and has {token.flags[0]}, which is not supported")
    if texts and _adds_blank(spec):
        raise ModelError(
            f"added token {texts[0].content!r} is text, and a step puts a blank before a text (Prepend, "
            "prepend_scheme or add_prefix_space), which is not supported together"
        )
    if not is_sentencepiece and list(iter_steps(spec.get("normalizer"))):
        for token in texts:
            is_blank = token.content.isascii() and token.content.isspace()  # nothing composes with it
            if not token.is_normalized and not is_blank:
                raise ModelError(f"added token {token.content!r} is text and found before NFC, which is not supported")
            if unicodedata.normalize("NFC", token.content) != token.content:
                raise ModelError(f"added token {token.content!r} is changed by normalizer NFC, which is not supported")


def _group_added_texts(
    spec: _Json, added: tuple[AddedToken, ...], is_sentencepiece: bool
) -> tuple[tuple[AddedToken, ...], ...]:
    """The added texts: those found before the normalizer, then those found after it, as they stand in our text.

    In SentencePiece, a mark in a token that is found before the normalizer is only a typed U+2581, which is spelled by
    bytes. After it, a mark is a blank.
    """
    texts = [token for token in added if not token.is_control]
    if is_sentencepiece and list(iter_steps(spec.get("normalizer"))):
        shown = [token.content.replace(BLANK_MARK, " ") if token.is_normalized else token.content for token in texts]
        texts = [replace(token, content=content) for token, content in zip(texts, shown, strict=True)]
    if is_sentencepiece:
        texts = [token for token in texts if BLANK_MARK not in token.content]
    groups = [tuple(token for token in texts if token.is_normalized is is_after) for is_after in (False, True)]
    return tuple(group for group in groups if group)


def _build_steps(
    spec: _Json, is_sentencepiece: bool
) -> tuple[Normalizer | None, PreTokenizer | None, PreTokenizer | None]:
    """The normalizer, the pre-tokenizer and the splitter, without steps that add blanks or write them as marks."""
    pre_tokenizer = json.loads(json.dumps(spec.get("pre_tokenizer")))
    for index, step in enumerate(iter_steps(pre_tokenizer)):
        if step.get("add_prefix_space") and step["type"] == "ByteLevel" and index:
            raise ModelError("pre_tokenizer ByteLevel with add_prefix_space puts a blank before each pre-token")
        if "add_prefix_space" in step:
            step["add_prefix_space"] = False
        if "prepend_scheme" in step:
            step["prepend_scheme"] = "never"
    normalizer = None if is_sentencepiece or not list(iter_steps(spec.get("normalizer"))) else spec["normalizer"]
    model = {"type": "BPE", "vocab": {}, "merges": []}
    whole, split = (
        _build(json.dumps({"model": model, "normalizer": normalizer, "pre_tokenizer": steps}))
        for steps in (pre_tokenizer, _drop_byte_step(pre_tokenizer))
    )
    return whole.normalizer, whole.pre_tokenizer, split.pre_tokenizer


def _drop_byte_step(pre_tokenizer: _Json) -> _Json:
    """The steps before a last one that writes bytes and splits nothing; None if there are no such steps."""
    if pre_tokenizer is None or pre_tokenizer["type"] != "Sequence" or len(pre_tokenizer["pretokenizers"]) < 2:
        return None
    before = {**pre_tokenizer, "pretokenizers": pre_tokenizer["pretokenizers"][:-1]}
    last = pre_tokenizer["pretokenizers"][-1]
    only_writes_bytes = last["type"] == "ByteLevel" and not last.get("use_regex", True)
    return before if only_writes_bytes and all(step["type"] != "ByteLevel" for step in iter_steps(before)) else None


def _find_pattern(step: _Json) -> list[str]:
    """The pattern of a step in a list, which is empty if it has none."""
    return list((step.get("pattern") or {}).values())


def _describe(step: _Json) -> str:
    return " of ".join([str(step["type"]), *map(repr, _find_pattern(step))])

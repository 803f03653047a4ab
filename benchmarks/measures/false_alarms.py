"""Ordinary code that is taken for a secret: keys at which nothing is sent, and text that is replaced."""

from collections.abc import Iterator, Sequence

from benchmarks.corpora.packaged_code import load_code
from benchmarks.measures.report import Figures
from lsp_server.errors import InSecretError
from lsp_server.privacy.redaction import Redactor
from lsp_server.settings import Settings

_NUM_KEYS, _KEYS_OF_A_FILE = 9_000, 600  # in each language
_NUM_CHARS = 1_000_000  # that are searched in each language


def measure_false_alarms() -> Figures:
    """Types lines of code with the text above them, and searches whole files, for servers here and elsewhere."""
    code, redactors = load_code(), (Redactor(), Redactor(is_strict=True))
    num_keys, refused, replaced = 0, list[str](), list[str]()
    for language, texts in code.items():
        for number, prefix in enumerate(_iter_keys(texts)):
            num_keys += 1
            try:
                for redactor in redactors:
                    redactor.redact_parts([prefix, ""], cursor=1)
            except InSecretError:
                refused.append(f"{language}: {prefix[prefix.rfind(chr(10)) + 1 :]}")
            if number + 1 == _NUM_KEYS:
                break
        searched = "\n".join(texts)[:_NUM_CHARS]
        spans = redactors[1].find_spans(searched)  # which finds what the other one finds, and more
        replaced += [f"{language}: {searched[max(0, span.start - 60) : span.end]!r}" for span in spans]
    print(f"{num_keys} keys in {', '.join(code)}", *refused, "replaced:", *replaced, sep="\n")
    return {
        "false_refusal_keys": num_keys,
        "false_refusal_languages": len(code),
        "false_refusals": len(refused),
        "false_replacements": len(replaced),
    }


def _iter_keys(texts: Sequence[str]) -> Iterator[str]:
    """Yields the text before the cursor after each key, in the middle of each file."""
    limit = Settings().sizes.prefix_bytes
    for text in texts:
        start = text.find("\n", len(text) // 2) + 1
        for end in range(start + 1, min(start + _KEYS_OF_A_FILE, len(text))):
            if text[end - 1] != "\n":
                yield text[max(0, end - limit) : end]

"""The parts of a prompt into which a client has written markers: those of fill-in, and of files.

Clients write those of the model that they believe to talk to. A prompt without markers is text. One whose markers are
not understood is refused by name, because the model would take them for text, too.
"""

import re

from inference import fim_markers
from inference.errors import InvalidRequestError, quote
from inference.protocol.completion import RelatedFile
from midtoken.http.parsed_request import SplitPrompt

_FILE_MARKER = re.compile(r"<\|?(repo_name|reponame|file_sep|file_separator|filename(?!>[^\n]*</))\|?>")
_START = re.compile(r"\A\s*(?:<s>|<bos>|<\|begin_of_text\|>|<｜begin▁of▁sentence｜>)")  # which the tokenizer adds
# What has the form of a marker. Texts have it within a line, templates where a line begins or the prompt ends.
_SHAPE = r"(?:<\|[^|<>\s]+\|>|<｜[^｜<>\s]+｜>|<\[[a-z]+-[a-z]+\]>|<fim[-_]\w+>|<repo_?name>|<file_sep(?:arator)?>)"
_MARKER = re.compile(rf"^{_SHAPE}|{_SHAPE}(?=\s*\Z)", re.MULTILINE)
_TOGETHER = "send prompt and suffix as separate fields"


def split_prompt(prompt: str) -> SplitPrompt:
    """Returns the parts of a prompt, if it has the markers of a model, in any order.

    A prompt without them is the text before the cursor. Raises InvalidRequestError if a marker stands in the text, too,
    if one is missing, and for markers and formats that are not known.
    """
    _refuse_foreign(prompt)
    incomplete = ""
    for markers in fim_markers.WRITTEN:
        others, *pieces = re.split(f"({'|'.join(map(re.escape, markers))})", prompt)
        sections = dict(zip(pieces[::2], pieces[1::2], strict=True))
        if sections.keys() == set(markers) and _is_template(prompt, others, markers):
            if len(pieces) > 2 * len(markers):
                raise InvalidRequestError(f"prompt has {markers[0]} or a marker like it twice; {_TOGETHER}")
            before, after, *typed = (sections[marker] for marker in markers)
            if markers == fim_markers.CODELLAMA_WRITTEN:
                before, after = _strip_codellama(before, after)
            before, files = _join(before, *typed), _split_files(others)
            _refuse_unknown(before, after, files[0].text)
            related = tuple([each for each in files if each.text.strip()])
            return SplitPrompt(before, after, related, files[-1].path)
        if sections and _is_edge(prompt, markers):
            missing = next((f"no {marker}" for marker in markers if marker not in sections), "within a line")
            incomplete = incomplete or f"prompt has {pieces[0]}, but {missing}; {_TOGETHER}"
    if incomplete:
        raise InvalidRequestError(incomplete)
    first, *files = _split_files(prompt)
    if first.text.strip() or not files:
        _refuse_unknown(prompt)
        return SplitPrompt(prompt)
    _refuse_unknown(files[-1].text)  # at whose end the cursor is
    if not (files[-1].text or prompt.endswith("\n")):
        raise InvalidRequestError(f"prompt ends in the path behind a file marker; {_TOGETHER}")
    return SplitPrompt(files[-1].text, "", tuple(files[:-1]), files[-1].path)


def _refuse_foreign(prompt: str) -> None:
    for name, markers in fim_markers.FOREIGN.items():
        if all(marker in prompt for marker in markers):
            raise InvalidRequestError(f"prompt has {markers[0]} in the format of {name}; {_TOGETHER}")


def _refuse_unknown(*texts: str) -> None:
    for text in texts:
        if found := _MARKER.search(text):
            raise InvalidRequestError(f"prompt has the marker {quote(found[0])}, which is not understood; {_TOGETHER}")


def _is_template(prompt: str, others: str, markers: tuple[str, ...]) -> bool:
    """Whether the markers have been written around the prompt's parts, and do not stand in its text.

    They begin it, or follow files. Where the files have no markers, the last marker ends the prompt.
    """
    files = _START.sub("", others, count=1).lstrip()
    if not files or _FILE_MARKER.match(files):
        return True
    return files.endswith("\n") and prompt.rstrip().endswith(markers)


def _is_edge(prompt: str, markers: tuple[str, ...]) -> bool:
    """Whether a marker begins or ends the prompt, as in a template."""
    return _START.sub("", prompt, count=1).lstrip().startswith(markers) or prompt.rstrip().endswith(markers)


def _strip_codellama(before: str, after: str) -> tuple[str, str]:
    """Without the blanks of the template, which is `<PRE> before <SUF>after <MID>`, or has none of them.

    Twinny writes one behind `<SUF>`, too, and begins with `<PRE>`, other files and a blank line end.
    """
    if not (before.endswith(" ") and after.endswith(" ")):
        return before, after
    is_twinny = not before.startswith(" ") or before.startswith(" \n")
    if is_twinny or re.match(r" [\r\n]| \Z", after):
        after = after.removeprefix(" ")
    return before.removeprefix(" ")[:-1], after.removesuffix(" ")


def _join(before: str, typed: str = "") -> str:
    """Without blanks behind the last marker that nobody has typed: the cursor is where the text before it ends."""
    is_typed = typed.strip() or before.endswith("\n") or not before
    return before + typed if is_typed else before


def _split_files(text: str) -> list[RelatedFile]:
    """What stands before the first file marker, then the files. The path is the line behind a marker."""
    first, *pieces = _FILE_MARKER.split(_START.sub("", text, count=1))
    pairs = zip(pieces[::2], pieces[1::2], strict=True)
    parts = [piece.partition("\n") for kind, piece in pairs if kind.startswith("file")]
    return [RelatedFile(path.strip(), content) for path, _, content in [("", "", first), *parts]]

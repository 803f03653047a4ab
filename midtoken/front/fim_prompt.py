"""The parts of a prompt into which a client has written fill-in markers.

Clients write those of the model that they believe to talk to. A prompt that is in none of the known formats is text,
unless it is known to be in a format that cannot be taken apart here: that is refused by name.
"""

import re

from inference import fim_markers
from inference.errors import InvalidRequestError
from inference.protocol.completion import RelatedFile
from midtoken.front.parsed_request import SplitPrompt

_FILE_MARKER = re.compile(r"<\|?(repo_name|reponame|file_sep|file_separator)\|?>")
_START = re.compile(r"<s>|<bos>|<\|begin_of_text\|>|<｜begin▁of▁sentence｜>")  # which the tokenizer adds
_TOGETHER = "send prompt and suffix as separate fields"


def split_prompt(prompt: str) -> SplitPrompt:
    """Returns the parts of a prompt, if it has the markers of a model, in any order.

    A prompt without them is the text before the cursor. Raises InvalidRequestError if a marker stands in the text, too,
    if one is missing, and for a format that is not known.
    """
    _refuse_foreign(prompt)
    incomplete = ""
    for markers in fim_markers.WRITTEN:
        others, *pieces = re.split(f"({'|'.join(map(re.escape, markers))})", prompt)
        sections = dict(zip(pieces[::2], pieces[1::2], strict=True))
        if sections.keys() == set(markers):
            if len(pieces) > 2 * len(markers):
                raise InvalidRequestError(f"prompt has {markers[0]} or a marker like it twice; {_TOGETHER}")
            before, after, *typed = (sections[marker] for marker in markers)
            return SplitPrompt(_join(before, *typed), after, *_split_files(_START.sub("", others, count=1)))
        if len(sections) > 1:
            missing = next(marker for marker in markers if marker not in sections)
            incomplete = incomplete or f"prompt has {pieces[0].strip()}, but no {missing.strip()}; {_TOGETHER}"
    if incomplete:
        raise InvalidRequestError(incomplete)
    return SplitPrompt(prompt)


def _refuse_foreign(prompt: str) -> None:
    for name, markers in fim_markers.FOREIGN.items():
        if all(marker in prompt for marker in markers):
            raise InvalidRequestError(f"prompt has {markers[0]} in the format of {name}; {_TOGETHER}")


def _join(before: str, typed: str = "") -> str:
    """Without blanks behind the last marker that nobody has typed: the cursor is where the text before it ends."""
    is_typed = typed.strip() or before.endswith("\n") or not before
    return before + typed if is_typed else before


def _split_files(text: str) -> tuple[tuple[RelatedFile, ...], str]:
    """The files in the text before the markers, and the path behind the last file marker."""
    first, *pieces = _FILE_MARKER.split(text)
    pairs = zip(pieces[::2], pieces[1::2], strict=True)
    parts = [piece.partition("\n") for kind, piece in pairs if kind.startswith("file")]
    named = [RelatedFile(path.strip(), content) for path, _, content in [("", "", first), *parts]]
    return tuple([each for each in named if each.text.strip()]), named[-1].path

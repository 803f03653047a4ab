"""The format in which a model reads other files of a project: that of its training, or plain text.

Only what the publishers say is here; docs/fill_in.md names the source of each row. A format belongs to a model that was
trained on its family's fill-in markers and has its special tokens, which many tokenizers have without training.

What tells of other files comes first, before the fill-in markers, so that it stays read while a file is edited.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

from inference import fim_markers
from inference.engine.layout import FillIn
from inference.healing.heal_point import encode_section
from inference.healing.loaded_tokenizer import LoadedTokenizer
from inference.protocol.completion import CompletionRequest, ExplainedFile, RelatedFile

_MAX_FILES = 64  # whose tokens are remembered
_MAX_CHARS_PER_TOKEN = 16  # a longer text does not fit, and is not tokenized to see that


@dataclass(frozen=True, slots=True)
class RepositoryFormat:
    """Templates. `{path}` stands for the line of a path, if it is known; `{text}` ends with one line end."""

    name: str  # empty: plain text, which no model was trained on
    file: str  # each of the other files
    fim_names: tuple[str, ...] = ()  # the fill-in markers of the models
    specials: tuple[str, ...] = ()  # the special tokens in the templates
    start: str = ""  # before the files
    own: str = ""  # after them, before the fill-in markers
    head: str = ""  # at the beginning of the prefix section
    path_line: str = "{}\n"


# The repository's name is not known here. llama-server writes "myproject".
_FORMATS = (
    RepositoryFormat(
        "qwen",
        "<|file_sep|>{path}{text}",
        fim_markers.QWEN,
        ("<|repo_name|>", "<|file_sep|>"),
        start="<|repo_name|>project\n",
        own="<|file_sep|>{path}",
    ),
    RepositoryFormat(
        "codegemma", "{path}{text}<|file_separator|>", fim_markers.QWEN, ("<|file_separator|>",), own="{path}"
    ),
    RepositoryFormat(
        "starcoder2",
        "<file_sep>{path}{text}",
        fim_markers.STARCODER,
        ("<repo_name>", "<file_sep>"),
        start="<repo_name>project",
        own="<file_sep>",
        head="{path}",
    ),
    RepositoryFormat(
        "codeqwen",
        "<file_sep>{path}{text}",
        fim_markers.STARCODER,
        ("<reponame>", "<file_sep>"),
        start="<reponame>project\n",
        own="<file_sep>{path}",
    ),
    RepositoryFormat(
        "filename", "<filename>{path}{text}", fim_markers.STARCODER, ("<filename>",), own="<filename>{path}"
    ),
    RepositoryFormat("deepseek", "{path}{text}\n\n", fim_markers.DEEPSEEK, head="{path}", path_line="# {}\n"),
)
PLAIN = RepositoryFormat("", "{text}")


@dataclass(frozen=True, slots=True)
class RelatedPart:
    """What a prompt tells of other files, and the path of its own."""

    ids: tuple[int, ...] = ()  # before the fill-in markers
    head_ids: tuple[int, ...] = ()  # at the beginning of the prefix section
    files: tuple[ExplainedFile, ...] = ()

    @property
    def num_tokens(self) -> int:
        """Its tokens in the prompt."""
        return len(self.ids) + len(self.head_ids)


def find_format(tokenizer: LoadedTokenizer, fill_in: FillIn | None) -> RepositoryFormat:
    """The format of a model that is given suffixes as `fill_in` says."""
    markers = () if fill_in is None else (fill_in.markers.prefix, fill_in.markers.suffix, fill_in.markers.middle)
    special_id = tokenizer.vocabulary.special_id
    for each in _FORMATS:
        if tuple(map(special_id, each.fim_names)) == markers and None not in map(special_id, each.specials):
            return each
    return PLAIN


class RelatedEncoder:
    """Encodes related parts for one model. Each file is encoded once, and by itself."""

    def __init__(self, tokenizer: LoadedTokenizer, fill_in: FillIn | None) -> None:
        self.format = find_format(tokenizer, fill_in)
        self._tokenizer = tokenizer
        self._special = re.compile(f"({'|'.join(map(re.escape, self.format.specials)) or '(?!)'})")
        self._encode = lru_cache(_MAX_FILES)(self._encode_template)

    def encode(self, request: CompletionRequest, max_tokens: int) -> RelatedPart:
        """The related part of a request, with as many of the first files as fit into `max_tokens`.

        Empty if there is nothing to tell.
        """
        frame = (self.format.start, self.format.own, self.format.head)
        start, own, head = (self._encode(template, request.path, "") for template in frame)
        room = max_tokens - len(start) - len(own) - len(head)
        sections = self._encode_files(request.related, room)
        counts = [*map(len, sections), *[None] * (len(request.related) - len(sections))]
        files = tuple(map(ExplainedFile, (each.path for each in request.related), counts))
        if room < 0 or not (sections or (request.path and self.format.name)):
            return RelatedPart(files=files)
        return RelatedPart((*start, *chain.from_iterable(sections), *own), head, files)

    def _encode_files(self, files: tuple[RelatedFile, ...], room: int) -> list[tuple[int, ...]]:
        sections: list[tuple[int, ...]] = []
        for file in files:
            if len(file.text) > room * _MAX_CHARS_PER_TOKEN:
                break
            ids = self._encode(self.format.file, file.path, file.text.rstrip("\n") + "\n")
            if len(ids) > room:
                break
            sections.append(ids)
            room -= len(ids)
        return sections

    def _encode_template(self, template: str, path: str, text: str) -> tuple[int, ...]:
        line = path and self.format.path_line.format(path)
        return tuple(
            chain.from_iterable(
                self._encode_piece(piece, line, text) for piece in self._special.split(template) if piece
            )
        )

    def _encode_piece(self, piece: str, line: str, text: str) -> tuple[int, ...]:
        if piece in self.format.specials:
            special_id = self._tokenizer.vocabulary.special_id(piece)
            return () if special_id is None else (special_id,)
        return encode_section(self._tokenizer.encoder, piece.format(path=line, text=text))

"""The prompt of a request: the kept tokens in the layout that the model was trained with, and the healed bytes.

In a fill-in-the-middle prompt, the partial word would be at the end of the prefix section, far from the position where
the model continues. So the healed bytes are removed from the prefix section, and the covering spells them at the end of
the prompt; `inference.engine.fill_in` shows the layouts.

The start tokens, the markers, both sections and the tokens that spell the healed bytes must fit into the available
room. If they do not, the suffix is shortened first, to a quarter of the room, and further only until the kept tokens
have a quarter. Then the kept tokens are cut at the front. The start tokens and the healed bytes are never cut: a
request whose healed bytes do not fit is refused.

What the prompt has of other files follows the start tokens, before the fill-in markers, so that it stays cached while a
file is edited. It takes at most half of the room, in whole files. Its format is that of the model's training, or plain
text. Only what the publishers say is here; docs/fill_in.md names the source of each row. A format belongs to a model
that was trained on its family's fill-in markers and has its special tokens, which many tokenizers have without
training.
"""

import math
import re
import sys
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain

from inference import fim_markers
from inference.engine.fill_in import FillIn
from inference.errors import InvalidRequestError
from inference.healing.covering import CoveringTree, Rule, build_covering, build_root_covering
from inference.healing.heal_point import HealPointCache, encode_section, encode_text
from inference.healing.loaded_tokenizer import LoadedTokenizer
from inference.healing.token_tree import TokenTree
from inference.model.sampler import SampleResult
from inference.protocol.completion import (
    CompletionRequest,
    ExplainedFile,
    ExplainedNode,
    Explanation,
    Healing,
    RelatedFile,
    show_bytes,
)

_MAX_CHARS_PER_TOKEN = 16  # for each token of the room; text further from the cursor is not tokenized
_CHARS_PER_TOKEN = 4  # of code, about
_AHEAD_FRACTION = 0.125  # of the room; more is seldom typed without a pause
_MIN_SPELLING_ROOM = 32  # for tokens that spell healed bytes; if it followed them, the window would move with them
_MAX_SUFFIXES = 32  # whose tokens are remembered
_MAX_SUFFIX_FRACTION = 0.25  # of the room
_MIN_KEPT_FRACTION = 0.25  # of the room: the suffix leaves this much to the kept tokens
_NUM_KEPT_SHOWN = 8  # tokens, in an explanation
_MAX_FILES = 64  # whose tokens are remembered


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
_PLAIN = RepositoryFormat("", "{text}")


@dataclass(frozen=True, slots=True)
class RelatedPart:
    """What a prompt has of other files, and the path of its own."""

    ids: tuple[int, ...] = ()  # before the fill-in markers
    head_ids: tuple[int, ...] = ()  # at the beginning of the prefix section
    files: tuple[ExplainedFile, ...] = ()

    @property
    def num_tokens(self) -> int:
        """Its tokens in the prompt."""
        return len(self.ids) + len(self.head_ids)


def _find_format(tokenizer: LoadedTokenizer, fill_in: FillIn | None) -> RepositoryFormat:
    """Returns the format of a model that is given suffixes as `fill_in` says."""
    markers = () if fill_in is None else (fill_in.markers.prefix, fill_in.markers.suffix, fill_in.markers.middle)
    find_id = tokenizer.vocabulary.special_tokens.get
    known = (each for each in _FORMATS if None not in map(find_id, each.specials))
    return next((each for each in known if tuple(map(find_id, each.fim_names)) == markers), _PLAIN)


class RelatedEncoder:
    """Encodes related parts for one model. Each file is encoded once, and by itself."""

    def __init__(self, tokenizer: LoadedTokenizer, fill_in: FillIn | None) -> None:
        self.format = _find_format(tokenizer, fill_in)
        self._tokenizer = tokenizer
        self._special = re.compile(f"({'|'.join(map(re.escape, self.format.specials)) or '(?!)'})")
        self._encode = lru_cache(_MAX_FILES)(self._encode_template)

    def encode(self, request: CompletionRequest, max_tokens: int) -> RelatedPart:
        """Returns the related part of a request, with as many of the first files as fit into `max_tokens`.

        Empty if there is nothing.
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
        line, ids = path and self.format.path_line.format(path), list[int]()
        for piece in filter(None, self._special.split(template)):
            if piece in self.format.specials:
                ids.append(self._tokenizer.vocabulary.special_tokens[piece])
            else:
                ids += encode_section(self._tokenizer.encoder, piece.format(path=line, text=text))
        return tuple(ids)


@dataclass(frozen=True, slots=True)
class Prompt:
    """The input of a request's first forward pass."""

    context_ids: tuple[int, ...]  # never empty
    covering: CoveringTree
    kept_ids: tuple[int, ...]  # the part of `context_ids` that comes from the text before the cursor
    healed: bytes
    num_healed_bytes: int  # without the dummy prefix, which was not typed
    num_spelling_tokens: int  # the most tokens that spell only healed bytes
    reads_suffix: bool  # whether `context_ids` has text after the cursor
    related: RelatedPart
    was_cut: bool  # whether there was no room for all of the text before the cursor

    @property
    def tree(self) -> TokenTree:
        """That of the covering, below the context."""
        return self.covering.tree.with_chain(self.context_ids)


class PromptBuilder:
    """Builds prompts for one model."""

    def __init__(self, tokenizer: LoadedTokenizer, fill_in: FillIn | None = None) -> None:
        """`fill_in`: how the model is given suffixes; None: it is not."""
        self.tokenizer = tokenizer
        self.fill_in = fill_in
        self.related = RelatedEncoder(tokenizer, fill_in)
        self._heal_point_cache = HealPointCache(tokenizer.encoder)
        self._encode_section = lru_cache(_MAX_SUFFIXES)(partial(encode_section, tokenizer.encoder))

    def build(self, request: CompletionRequest, max_tokens: int, anticipates_typing: bool = False) -> Prompt:
        """The request's prompt. The context and the tokens that spell healed bytes are at most `max_tokens` together.

        `anticipates_typing`: the window is where it will be when somewhat more is typed. Raises InvalidRequestError if
        the healed bytes do not fit.
        """
        num_ahead = int(max_tokens * _AHEAD_FRACTION) if anticipates_typing else 0
        prefix = _cut_front(request.prefix, max_tokens * _MAX_CHARS_PER_TOKEN, num_ahead * _CHARS_PER_TOKEN)
        kept, healed, covering = self._heal(prefix, request)
        num_spelling = _count_spelling_tokens(covering)
        room = max_tokens - len(self.tokenizer.start_ids) - max(num_spelling, min(_MIN_SPELLING_ROOM, max_tokens // 4))
        if room < 0:
            raise InvalidRequestError(
                f"the {len(healed)} bytes before the cursor that are generated again may take {num_spelling} tokens, "
                f"and the start tokens take {len(self.tokenizer.start_ids)}, but the prompt has room for {max_tokens}; "
                "set healing to none"
            )
        related = self.related.encode(request, room // 2)
        room -= related.num_tokens
        num_markers = 0 if self.fill_in is None else self.fill_in.markers.num_tokens
        num_kept_first = min(len(kept), int(max_tokens * _MIN_KEPT_FRACTION))
        num_suffix = min(int(max_tokens * _MAX_SUFFIX_FRACTION), room - num_kept_first - num_markers)
        suffix_ids = self._encode_suffix(request.suffix, num_suffix)
        all_kept, kept = kept, _cut_window(kept, room - len(suffix_ids) - (num_markers if suffix_ids else 0), num_ahead)
        num_healed_bytes = self._count_typed(prefix, len(healed), covering.num_common_bytes)
        sections = related.head_ids + kept
        if self.fill_in is not None and suffix_ids:
            token_bytes, num_open = self.tokenizer.vocabulary.token_bytes, len(covering.common_ids)
            sections = self.fill_in.lay_out(kept, suffix_ids, healed, token_bytes, num_open, related.head_ids)
        return Prompt(
            self.tokenizer.start_ids + related.ids + sections,
            covering,
            kept,
            healed,
            num_healed_bytes,
            num_spelling,
            reads_suffix=bool(suffix_ids),
            related=related,
            was_cut=len(kept) < len(all_kept) or len(prefix) < len(request.prefix),
        )

    def _count_typed(self, prefix: str, num_healed: int, num_common: int) -> int:
        """How many of the healed bytes were typed. Raises InvalidRequestError if the vocabulary cannot spell them.

        `num_common`: the bytes between them and the heal point.
        """
        typed = self.tokenizer.encoder.normalize(prefix)
        num_bytes = len(typed.encode())
        self.tokenizer.encoder.check_end(typed, min(num_common + num_healed, num_bytes), "prefix")
        return min(num_healed, num_bytes)

    def _heal(self, prefix: str, request: CompletionRequest) -> tuple[tuple[int, ...], bytes, CoveringTree]:
        healing = request.healing
        if healing is Healing.EXACT:
            point = self._heal_point_cache.heal(prefix, request.tenant)
            covering = build_covering(self.tokenizer.encoder, self.tokenizer.trie, point)
            return point.kept_ids + covering.common_ids, point.healed[covering.num_common_bytes :], covering
        if healing is Healing.GREEDY:
            point = self._heal_point_cache.heal(prefix, request.tenant)
            return point.kept_ids, point.healed, build_root_covering(point.healed, Rule.SPELL)
        ids = encode_text(self.tokenizer.encoder, prefix)
        if healing is Healing.SINGLE and ids:
            last = self.tokenizer.vocabulary.token_bytes[ids[-1]]
            return ids[:-1], last, build_root_covering(last, Rule.EXTEND)
        return ids, b"", build_root_covering(b"", Rule.EXTEND)

    def _encode_suffix(self, suffix: str, max_tokens: int) -> tuple[int, ...]:
        """The suffix's first tokens; none if the model is not given suffixes."""
        if self.fill_in is None or max_tokens <= 0 or not suffix.strip():
            return ()
        return self._encode_section(suffix[: max_tokens * _MAX_CHARS_PER_TOKEN])[:max_tokens]


def _count_spelling_tokens(covering: CoveringTree) -> int:
    """The most tokens that spell only healed bytes: those of a path, and those for its remaining bytes."""
    depths = covering.tree.find_depths()
    most = {Rule.CROSS: 0, Rule.EXTEND: 1, Rule.SPELL: sys.maxsize}  # those for the remaining bytes: one for each byte
    return max(
        (
            (0 if each.node is None else depths[each.node]) + min(most[each.rule], len(each.remaining_bytes))
            for each in covering.crossings
        ),
        default=0,
    )


def _cut_front(text: str, max_chars: int, num_ahead: int = 0) -> str:
    """The end of the text, cut at a line start if possible. The cut moves in blocks of half of `max_chars`.

    `num_ahead`: characters for which room is left.
    """
    num_chars = len(text) + num_ahead
    if num_chars <= max_chars:
        return text
    block = max(max_chars // 2, 1)
    start = -(-(num_chars - max_chars) // block) * block
    line = text.find("\n", start) + 1
    return text[line if 0 < line < start + max_chars // 8 else start :]


def _cut_window(ids: tuple[int, ...], max_tokens: int, num_ahead: int) -> tuple[int, ...]:
    """The last ids, at most `max_tokens`. The cut moves in blocks; otherwise each keystroke would move it.

    A block is a power of two, at most half of the room. `num_ahead`: tokens for which room is left.
    """
    num_ids = len(ids) + num_ahead
    if num_ids <= max_tokens:
        return ids
    block = 1 << (max(max_tokens // 2, 1).bit_length() - 1)
    return ids[-(-(num_ids - max_tokens) // block) * block :]


def build_explanation(tokenizer: LoadedTokenizer, prompt: Prompt, result: SampleResult) -> Explanation:
    """Explains what healing did at the cursor: the tree with the mass of each node's crossing, and the chosen path.

    `result`: that of the first choice.
    """
    scores, tree = result.scores, prompt.tree
    assert scores is not None, "an explanation asks for them"
    token_bytes = tokenizer.vocabulary.token_bytes
    masses = zip(prompt.covering.crossings, scores.log_masses.tolist(), strict=True)
    scored = {crossing.node: index for index, (crossing, mass) in enumerate(masses) if math.isfinite(mass)}
    nodes = []
    for node in (None, *range(len(tree.branch_ids))):
        parent = None if node is None else tree.parents[node]
        index = scored.get(node)
        nodes.append(
            ExplainedNode(
                parent=None if node is None else (0 if parent is None else parent + 1),
                token="" if node is None else show_bytes(token_bytes[tree.branch_ids[node]]),
                num_covered_bytes=sum(len(token_bytes[tree.branch_ids[branch]]) for branch in tree.iter_path(node)),
                log_mass=None if index is None else float(scores.log_masses[index]),
                best_token=None if index is None else _name(tokenizer, int(scores.best_ids[index])),
                best_log_prob=None if index is None else float(scores.best_log_probs[index]),
            )
        )
    choice = result.choices[0]
    chosen = [show_bytes(token_bytes[token_id]) for token_id in tree.spell_path(choice.crossing.node)]
    return Explanation(
        kept_tail=tuple(_name(tokenizer, token_id) for token_id in prompt.kept_ids[-_NUM_KEPT_SHOWN:]),
        healed_bytes=show_bytes(prompt.healed[len(prompt.healed) - prompt.num_healed_bytes :]),
        nodes=tuple(nodes),
        chosen_tokens=(*chosen, _name(tokenizer, choice.token_id)),
        unhealed_tokens=tuple(show_bytes(token_bytes[token_id]) for token_id in _encode_healed(tokenizer, prompt)),
        related=prompt.related.files,
    )


def _encode_healed(tokenizer: LoadedTokenizer, prompt: Prompt) -> tuple[int, ...]:
    """The tokens of the healed bytes as they stand. The common tokens before them are those of all continuations."""
    common_ids = prompt.covering.common_ids
    common = b"".join(tokenizer.vocabulary.token_bytes[token_id] for token_id in common_ids)
    try:
        return encode_section(tokenizer.encoder, (common + prompt.healed).decode())[len(common_ids) :]
    except UnicodeDecodeError:  # with `single`, the healed bytes may begin inside a code point
        return tokenizer.encoder.encode_beginning(prompt.healed)


def _name(tokenizer: LoadedTokenizer, token_id: int) -> str:
    names = (name for name, special_id in tokenizer.vocabulary.special_tokens.items() if special_id == token_id)
    return next(names, "") or show_bytes(tokenizer.vocabulary.token_bytes[token_id])

"""How a model is given the text after the cursor: between fill-in markers, in a certain order.

| layout | prompt |
|---|---|
| `psm` | `<prefix>` kept `<suffix>` suffix `<middle>` healed … |
| `psm_line` | `<prefix>` lines above `<suffix>` suffix `<middle>` the cursor's line, healed … |
| `spm` | `<prefix>` `<suffix>` suffix `<middle>` kept, healed … |
| `spm_line` | `<suffix>` suffix `<prefix>` lines above `<middle>` the cursor's line, healed … |
| `spm`, without a middle marker | `<suffix>` suffix `<prefix>` kept, healed … |
| `none` | kept, healed …; the model does not read the suffix |

The healed bytes always stand at the very end, where the model generates, so healing is exact in each of them. In
`psm_line` and `spm_line`, the prompt up to the last marker stays the same while one line is typed; in `spm` it only
grows. In `psm` the prefix section changes with each word, and everything behind it is read again.

Which markers and layout, the engine's setting says, the folder's own file, or the family of the markers.

A model folder may hold `midtoken.json`:

    {"fill_in": {"layout": "spm", "prefix": "<PRE>", "suffix": "<SUF>", "middle": "<MID>"}}

`inference.model_folder` reads it. The markers are names of the tokenizer's special tokens. They may be left out if
the tokenizer has those of a known family, whose layouts are tried for them. Without `middle`, the suffix comes first
and no marker follows the prefix.

None of the known families can be measured here, so their layouts follow from what their authors say of the training:

- Qwen's coders: prefix–suffix–middle (their README, "file-level code completion").
- CodeGemma: both orders in equal parts; its prompts are prefix–suffix–middle (its model card). It has Qwen's names.
- StarCoder, StarCoder 2, Granite, SantaCoder, StableCode: prefix–suffix–middle in their documentation. Those trained
  with BigCode's code have read both orders.
- DeepSeek's coders: prefix–suffix–middle, chosen over the other order (paper of DeepSeek-Coder, section 3.1.2).
- CodeLlama: both orders in equal parts; its tokenizer writes prefix–suffix–middle unless told otherwise.
- Codestral: suffix, then prefix, without a third marker (Mistral's `encode_fim`).
- Seed-Coder, and Zeta 2, which was made of it: suffix–prefix–middle (its paper, section on pre-training).
- Mellum: suffix–prefix–middle (its model card). It has StarCoder's names, so a model with those is measured in both
  orders. Nothing is measured where the weights are on another server (`--engine`): there it needs `fill_in_layout`.
- aiXcoder: both orders; its prompts begin with two markers and the suffix, the prefix follows the last (its README).

A model that knows prefix–suffix–middle gets `psm_line`, one that knows suffix–prefix–middle `spm_line`: the same order,
with the middle beginning at the start of the cursor's line. A middle that begins inside a word is what such models do
worst (Ren et al. 2024, arXiv:2405.17103), and the bundled model completes 55 % of the identifiers rightly with `psm`,
79 % with `psm_line`. A model's folder can name another layout, as the bundled model's does.

Many models have the markers in their tokenizer and were never trained on them. Given a suffix between such markers,
they do worse than without it. A model that was trained on them ends its text where the suffix begins: right after the
missing text, and not in the middle of it. Without training, a text hardly ever ends in the middle of a statement, where
most of the samples have their gap.

So a few short samples are laid out with their suffix, and one pass measures how likely the end is after the missing
text, and after a part of it. The model was *trained on the markers* if the first is likely (a hundredth at least, as
the geometric mean over the samples) and ten times as likely as the second.
"""

import logging
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import accumulate
from pathlib import Path

from inference import fim_markers
from inference.config import AUTO_LAYOUT, EngineConfig
from inference.errors import ModelError, quote, refuse
from inference.healing.heal_point import encode_section, encode_text
from inference.healing.loaded_tokenizer import LoadedTokenizer
from inference.healing.token_tree import TokenTree
from inference.model.language_model import LanguageModel, LoadedModel, SequencePart
from inference.model.sampler import LogitRow
from inference.model_folder import OWN_FILE_NAME, check_keys, read_folder_file
from trie_cache.trie import Vocabulary

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FimMarkers:
    """The token ids of one model's markers."""

    prefix: int
    suffix: int
    middle: int | None = None  # None: the suffix comes first, and no marker follows the prefix

    @property
    def num_tokens(self) -> int:
        """The number of markers in a prompt."""
        return 2 if self.middle is None else 3


class Layout(StrEnum):
    """The order of the sections, and where the prefix section ends."""

    NONE = "none"
    PSM = "psm"
    PSM_LINE = "psm_line"
    SPM = "spm"
    SPM_LINE = "spm_line"


@dataclass(frozen=True, slots=True)
class FillIn:
    """How one model is given a suffix. Its layout is not `none`, and without a middle marker it is `spm`."""

    markers: FimMarkers
    layout: Layout

    def lay_out(
        self,
        kept_ids: tuple[int, ...],
        suffix_ids: tuple[int, ...],
        healed: bytes,
        token_bytes: Sequence[bytes],
        num_open: int = 0,
        head_ids: tuple[int, ...] = (),
    ) -> tuple[int, ...]:
        """The prompt without start tokens and healed bytes. `healed` tells where the cursor's line starts.

        `num_open`: how many of the last kept tokens belong to the open word. They are not separated from its end.
        `head_ids`: what comes before the kept tokens.
        """
        markers = self.markers
        if markers.middle is None:
            return (markers.suffix, *suffix_ids, markers.prefix, *head_ids, *kept_ids)
        if self.layout is Layout.SPM:
            return (markers.prefix, markers.suffix, *suffix_ids, markers.middle, *head_ids, *kept_ids)
        split = len(kept_ids) if self.layout is Layout.PSM else find_line_split(kept_ids, healed, token_bytes)
        split = max(min(split, len(kept_ids) - num_open), 0)  # a short window may have cut the open word's tokens
        before, after = (markers.prefix, *head_ids, *kept_ids[:split]), (markers.suffix, *suffix_ids)
        sections = after + before if self.layout is Layout.SPM_LINE else before + after
        return (*sections, markers.middle, *kept_ids[split:])


def find_line_split(kept_ids: tuple[int, ...], healed: bytes, token_bytes: Sequence[bytes]) -> int:
    """How many of the kept tokens come before the cursor's line; a token that reaches across its start does not."""
    ends = list(accumulate((len(token_bytes[token_id]) for token_id in kept_ids), initial=0))
    text = b"".join(token_bytes[token_id] for token_id in kept_ids) + healed
    start = text.rfind(b"\n") + 1
    return max(index for index, end in enumerate(ends) if end <= start)


# The names of each family's markers: of prefix, suffix and, if there is one, middle. Of its layouts, that is taken in
# which a model does best.
_FAMILIES = {
    fim_markers.QWEN: (Layout.PSM_LINE,),
    fim_markers.STARCODER: (Layout.PSM_LINE, Layout.SPM_LINE),
    fim_markers.SANTACODER: (Layout.PSM_LINE,),
    fim_markers.DEEPSEEK: (Layout.PSM_LINE,),
    fim_markers.CODELLAMA: (Layout.PSM_LINE,),
    fim_markers.SEED_CODER: (Layout.SPM_LINE,),
    fim_markers.AIXCODER: (Layout.SPM,),
    fim_markers.CODESTRAL: (Layout.SPM,),
}
_KEYS = ("layout", "prefix", "suffix", "middle")

_MIN_LOG_END = math.log(0.01)
_MIN_CONTRAST = math.log(10)
# Families end the missing text with a token of their own: CodeLlama, CodeGemma, and those that have two end tokens.
_END_NAMES = {"▁<EOT>", "<EOT>", "<|file_separator|>", "<|endoftext|>", "<|end_of_text|>", "<file_sep>", "<|file_sep|>"}


def list_fill_ins(setting: str, folder: Path, vocabulary: Vocabulary) -> tuple[tuple[FillIn, ...], bool]:
    """Returns how suffixes may be given to the model in `folder`, in no way if there is none.

    With that comes whether setting or file name the layout; else it follows from the markers. `setting` is the
    engine's, a layout or `auto`.

    Raises ModelError if the setting or the folder's file is wrong or does not fit the tokenizer.
    """
    source, (layout, names) = OWN_FILE_NAME, _read_file(folder)
    if setting != AUTO_LAYOUT:
        source, layout = "fill_in_layout", _to_layout("fill_in_layout", setting, (AUTO_LAYOUT, *Layout))
    known = vocabulary.special_tokens.keys()
    names = names or next((each for each in _FAMILIES if known >= {*each}), ())
    own = Layout.PSM_LINE if len(names) == 3 else Layout.SPM if names else Layout.NONE
    layouts = _FAMILIES.get(names, (own,)) if layout is None else (layout,)
    ids = [vocabulary.special_tokens.get(name) for name in names]
    missing = [name for name, marker in zip(names, ids, strict=True) if marker is None]
    is_used = layouts != (Layout.NONE,)
    asks = f"{source} asks for the layout {layouts[0]}, "
    refuse(
        ModelError,
        {
            f"{asks}but the tokenizer has no known fill-in markers": is_used and not names,
            f"{source}: the tokenizer has no special token {', '.join(map(quote, missing[:1]))}": missing,
            f"{asks}which needs a middle marker; without one it is spm": (
                is_used and len(ids) == 2 and layouts != (Layout.SPM,)
            ),
            f"{source}: prefix, suffix and middle must be different markers": is_used and len({*ids}) < len(ids),
        },
    )
    markers = [marker for marker in ids if marker is not None]
    fill_ins = tuple([FillIn(FimMarkers(*markers), each) for each in layouts]) if is_used else ()
    return fill_ins, layout is not None


def _read_file(folder: Path) -> tuple[Layout | None, tuple[str, ...]]:
    """Returns the layout and the markers that a folder's file names."""
    path, values = folder / OWN_FILE_NAME, read_folder_file(folder).fill_in
    check_keys(path, "fill_in", values, _KEYS)
    odd = next((key for key, value in values.items() if not isinstance(value, str)), "")
    names = tuple(values[key] for key in ("prefix", "suffix", "middle") if key in values)
    is_half = bool(names) and not values.keys() >= {"prefix", "suffix"}
    refuse(
        ModelError,
        {
            f"{path}: {odd} must be a string, not {quote(repr(values.get(odd)))}": odd,
            f"{path}: name both prefix and suffix, or neither": is_half,
        },
    )
    return _to_layout(f"{path}: layout", values["layout"], tuple(Layout)) if "layout" in values else None, names


def _to_layout(name: str, value: str, known: Collection[str]) -> Layout:
    if value not in known:
        raise ModelError(f"{name} must be one of {', '.join(known)}, not {quote(value)}")
    return Layout(value)


def choose_fill_in(config: EngineConfig, loaded: LoadedModel[LanguageModel]) -> FillIn | None:
    """Returns how suffixes are given to the model; None if they are not.

    A layout that the setting or the folder's file names is taken as it is; one of the markers' family only if the model
    was trained on them, and of several that in which it most likely ends where the suffix begins. Raises ModelError if
    file or setting are wrong.
    """
    fill_ins, is_named = list_fill_ins(config.fill_in_layout, config.model_dir, loaded.tokenizer.vocabulary)
    if is_named or not fill_ins:
        return next(iter(fill_ins), None)
    measures = {each: measure_markers(loaded.model, loaded.tokenizer, each) for each in fill_ins}
    fill_in, measure = max(measures.items(), key=lambda each: each[1].log_end)
    if measure.is_trained:
        return fill_in
    _log.warning(
        "the model in %s has fill-in markers, but it does not end its text where the suffix begins (probability %.2g "
        "there, %.2g before), so it was not trained on them; it reads no suffixes",
        config.model_dir,
        math.exp(measure.log_end),
        math.exp(measure.log_early_end),
    )
    return None


SAMPLES = (  # texts with a gap: before it, a part of the missing text, the rest of that, after it
    ("def area(width, height):\n    return width", " *", " height", "\n\n\nprint(area(2, 3))\n"),
    ("total = 0\nfor number in numbers", ":\n    total", " += number", "\nprint(total)\n"),
    ("import os\n\n\ndef read(path):\n    with open", "(path", ")", " as file:\n        return file.read()\n"),
    ("class Point:\n    def __init__", "(self,", " x, y", "):\n        self.x = x\n        self.y = y\n"),
    ("if name is None", ":\n    name", " =", ' ""\nprint(name)\n'),
    ("names = [name", " for", " name", " in names if name]\nprint(names)\n"),
)


@dataclass(frozen=True, slots=True)
class MarkerMeasure:
    """Natural logarithms of probabilities, means over the samples."""

    log_end: float  # the text ends after the missing text
    log_early_end: float  # it ends after a part of the missing text

    @property
    def is_trained(self) -> bool:
        """True if the model ends its text where the suffix begins, and not before."""
        return self.log_end >= _MIN_LOG_END and self.log_end - self.log_early_end >= _MIN_CONTRAST


def measure_markers(model: LanguageModel, tokenizer: LoadedTokenizer, fill_in: FillIn) -> MarkerMeasure:
    """Returns what the markers do in this model, in one pass."""
    encode, vocabulary = partial(encode_section, tokenizer.encoder), tokenizer.vocabulary
    named = (end_id for name, end_id in vocabulary.special_tokens.items() if name in _END_NAMES)
    end_ids = vocabulary.end_ids.union(named)
    parts, sizes = list[SequencePart](), list[tuple[int, int]]()
    for prefix, part, remaining, suffix in SAMPLES:
        kept, suffix_ids = encode_text(tokenizer.encoder, prefix), encode(suffix)
        context = tokenizer.start_ids + fill_in.lay_out(kept, suffix_ids, b"", vocabulary.token_bytes)
        early, whole = encode(part), encode(part) + encode(remaining)
        tree = TokenTree(context, whole, (None, *range(len(whole) - 1)))
        parts.append(SequencePart(model.new_cache(tree.num_tokens), tree))
        sizes.append((len(early), len(whole)))
    rows = model.forward(parts)  # for each sample, those after none, one, two and so on of the tokens in the gap
    log_ends = [[_find_log_end(own[size], end_ids) for size in both] for own, both in zip(rows, sizes, strict=True)]
    log_early_end, log_end = (sum(each) / len(each) for each in zip(*log_ends, strict=True))
    return MarkerMeasure(log_end, log_early_end)


def _find_log_end(row: LogitRow, end_ids: Collection[int]) -> float:
    return math.log(max(sum(math.exp(row.find_logit(each) - row.log_total) for each in end_ids), 1e-30))

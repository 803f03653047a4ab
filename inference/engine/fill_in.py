"""Which markers and layout a model is given suffixes with: the engine's setting, the folder's own file, or the family.

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
  orders.
- aiXcoder: both orders; its prompts begin with two markers and the suffix, the prefix follows the last (its README).

A model that knows prefix–suffix–middle gets `psm_line`, one that knows suffix–prefix–middle `spm_line`: the same order,
with the middle beginning at the start of the cursor's line. A middle that begins inside a word is what such models do
worst (Ren et al. 2024, arXiv:2405.17103), and the default model completes 55 % of the identifiers rightly with `psm`,
79 % with `psm_line`. A model's folder can name another layout, as the default model's does.
"""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from inference import fim_markers
from inference.config import AUTO_LAYOUT
from inference.engine.layout import FillIn, FimMarkers, Layout
from inference.errors import ModelError, quote, refuse
from inference.model_folder import OWN_FILE_NAME, check_keys, read_folder_file
from trie_cache.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class MarkerFamily:
    """The names of a family's markers, and its layouts: that in which a model does best is taken."""

    names: tuple[str, ...]  # of prefix, suffix and, if there is one, middle
    layouts: tuple[Layout, ...] = (Layout.PSM_LINE,)


_FAMILIES = (
    MarkerFamily(fim_markers.QWEN),
    MarkerFamily(fim_markers.STARCODER, (Layout.PSM_LINE, Layout.SPM_LINE)),
    MarkerFamily(fim_markers.SANTACODER),
    MarkerFamily(fim_markers.DEEPSEEK),
    MarkerFamily(fim_markers.CODELLAMA),
    MarkerFamily(fim_markers.SEED_CODER, (Layout.SPM_LINE,)),
    MarkerFamily(fim_markers.AIXCODER, (Layout.SPM,)),
    MarkerFamily(fim_markers.CODESTRAL, (Layout.SPM,)),
)


_KEYS = ("layout", "prefix", "suffix", "middle")


@dataclass(frozen=True, slots=True)
class FillInChoice:
    """How suffixes may be given to a model. Empty: they are not."""

    fill_ins: tuple[FillIn, ...]
    is_named: bool  # the layout, by the setting or the folder's file; else it follows from the markers


def list_fill_ins(setting: str, folder: Path, vocabulary: Vocabulary) -> FillInChoice:
    """The choice for the model in `folder`. `setting` is the engine's, a layout or `auto`.

    Raises ModelError if the setting or the folder's file is wrong or does not fit the tokenizer.
    """
    named, family = _read_file(folder)
    known = vocabulary.special_tokens.keys()
    family = family or next((each for each in _FAMILIES if known >= {*each.names}), None)
    source = OWN_FILE_NAME
    if setting != AUTO_LAYOUT:
        source, named = "fill_in_layout", _to_layout("fill_in_layout", setting, (AUTO_LAYOUT, *Layout))
    layouts = (Layout.NONE,) if family is None else family.layouts
    return FillInChoice(_combine(source, layouts if named is None else (named,), family, vocabulary), named is not None)


def _read_file(folder: Path) -> tuple[Layout | None, MarkerFamily | None]:
    """The layout and the markers that a folder's file names."""
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
    layout = _to_layout(f"{path}: layout", values["layout"], tuple(Layout)) if "layout" in values else None
    own = MarkerFamily(names, (Layout.PSM_LINE if "middle" in values else Layout.SPM,)) if names else None
    return layout, next((family for family in _FAMILIES if family.names == names), own)


def _to_layout(name: str, value: str, known: Collection[str]) -> Layout:
    if value not in known:
        raise ModelError(f"{name} must be one of {', '.join(known)}, not {quote(value)}")
    return Layout(value)


def _combine(
    source: str, layouts: tuple[Layout, ...], family: MarkerFamily | None, vocabulary: Vocabulary
) -> tuple[FillIn, ...]:
    names = () if family is None else family.names
    ids = [vocabulary.special_id(name) for name in names]
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
    return tuple([FillIn(FimMarkers(*markers), layout) for layout in layouts]) if is_used else ()

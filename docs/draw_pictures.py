"""Pictures of `docs/characters.md` and `docs/measured.md`, of the bundled model: `python -m docs.draw_pictures`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from inference.characters.model import CharacterModel, CoveringSettings
from inference.characters.service import load_character_model
from inference.characters.state import State
from inference.config import EngineConfig
from inference.likely_text import LikelyText
from inference.model.loader import load_model
from inference.protocol.characters import CoveringKind
from lsp_server.settings import Settings
from midtoken import load
from trie_cache.trie import Trie

_PICTURES = Path(__file__).parent / "pictures"
_TEXT = b"class Node:\n    def next(self) -> Nod"
_HEALED = b" Nod"
_BYTES = b"e:a i"  # likely in one of the coverings
_BLUE, _GREY, _PALE = "#2b6cb0", "#a0a0a0", "#dbe8f5"

Path_ = tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class _Node:
    """A token string that spells a beginning of the healed bytes."""

    num_tokens: int  # that may follow and go beyond the text
    probability: float  # its part of the state's mass


def main() -> None:
    """Draws all."""
    matplotlib.rcParams |= {"svg.hashsalt": "midtoken", "font.size": 10, "font.family": "DejaVu Sans"}
    config = EngineConfig(Path(__file__).parent.parent / "models" / "default")
    loaded = load_model(config)
    trie, model = loaded.tokenizer.trie, load_character_model(config)
    _PICTURES.mkdir(exist_ok=True)
    pictures = {"coverings": _draw_coverings(model, trie), "slices": _draw_slices(trie), "next-byte": _draw_next(model)}
    with load() as completing:
        pictures["confidence"] = _draw_reveal(completing.complete(_CHAIN, "\n").likely)
    for name, figure in pictures.items():
        figure.savefig(_PICTURES / f"{name}.svg", bbox_inches="tight", metadata={"Date": None})


_CHAIN = """class Node:
    def __init__(self, value, next=None):
        self.value = value
        self.next = next


class Chain:
    def __init__(self):
        self.first = None

    def __iter__(self):
        node = self.first
        while node is not None:
            yield node.value
            node = node.next

    def append(self, value):
        n"""
_KEYS = (0, len("ode ="), len("ode = s"))  # typed after it


def _draw_reveal(likely: LikelyText) -> Figure:
    """A row for each key: what was typed, what is shown, and what is not shown yet."""
    width, char = 6.5, 0.602 * 16 / 72  # inches
    axes = (figure := Figure(figsize=(width, 1.5))).add_axes((0, 0, 1, 0.8))
    confidence = Settings().confidence
    for row, typed in enumerate(_KEYS):
        end, column = likely.count_likely(typed, confidence), 0
        shown = ((_CHAIN[-1] + likely.text[:typed], "black"), ("|", _BLUE), (likely.text[typed:end], _BLUE))
        for text, colour in (*shown, (likely.text[end:], "#d8d8d8")):
            axes.text(column, -row, text, family="DejaVu Sans Mono", size=16, color=colour, va="center")
            column += len(text)
    axes.set_title(f"typed | shown with confidence {confidence:g}, and what waits for more keys", loc="left", size=11)
    axes.set_xlim(0, width / char)
    axes.set_ylim(-len(_KEYS) + 0.4, 0.6)
    axes.axis("off")
    return figure


def _open(model: CharacterModel, kind: CoveringKind) -> State:
    return model.open(_TEXT, CoveringSettings(kind, width=64))


def _find_nodes(state: State, trie: Trie) -> dict[Path_, _Node]:
    """The state's bundles, by their tokens after the context."""
    nodes = {}
    for bundle in state.bundles:
        path = tuple(map(trie.spell, bundle.string.find_tokens_since(state.beginning)))
        while sum(map(len, path)) + len(bundle.remaining_bytes) > len(_HEALED):
            path = path[1:]
        interval = trie.find_interval(bundle.remaining_bytes)
        num_exact = trie.find_children(interval, len(bundle.remaining_bytes)).num_exact
        probability = float(np.exp(bundle.log_ahead - state.log_mass))
        nodes[path] = _Node(interval.num_tokens - num_exact if bundle.remaining_bytes else 0, probability)
    return nodes


def _draw_coverings(model: CharacterModel, trie: Trie) -> Figure:
    every = _find_nodes(_open(model, CoveringKind.BEAM), trie)
    tree = _find_nodes(_open(model, CoveringKind.CANONICAL), trie)
    figure = Figure(figsize=(11, 6))
    left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
    for axes, nodes, name in ((left, every, "every token string"), (right, tree, "the canonical token tree")):
        _draw_tree(axes, nodes, set(tree))
        whole = sum(sum(map(len, path)) == len(_HEALED) for path in nodes)
        count = whole + sum(node.num_tokens for node in nodes.values())
        axes.set_title(f"{name}: {len(nodes)} nodes, {count} strings", loc="left", weight="bold")
    return figure


def _draw_tree(axes: Axes, nodes: Mapping[Path_, _Node], canonical: set[Path_]) -> None:
    """A column for each number of bytes, a line for each node, its parent above it."""
    places = {path: (sum(map(len, path)), line) for line, path in enumerate(sorted(nodes))}
    for path, (column, line) in places.items():
        node = nodes[path]
        if path:
            above, height = places[path[:-1]]
            axes.plot([above, above, column], [height, line, line], color=_GREY, lw=1, zorder=1)
        label = " " + path[-1].decode().replace(" ", "␣") + " " if path else "…␣->"
        colour = _PALE if path in canonical else "white"
        box = {"boxstyle": "round", "fc": colour, "ec": _BLUE if path in canonical else _GREY}
        axes.text(column, line, label, ha="center", va="center", bbox=box, zorder=2)
        follows = f"{node.num_tokens} go beyond" if column < len(_HEALED) else "spells it"
        probability = f"{node.probability:.{'4f' if node.probability > 0.01 else '0e'}}"
        axes.text(4.6, line, f"{follows}, probability {probability}", va="center", fontsize=9)
    axes.set_xlim(-0.5, 8.2)
    axes.set_ylim(13.6, -0.8)
    axes.axis("off")


def _draw_slices(trie: Trie) -> Figure:
    """Each row is the slice that the row above it marks."""
    axes = (figure := Figure(figsize=(11, 7))).subplots()
    for row in range(len(_HEALED) + 1):
        lo, hi = trie.find_interval(_HEALED[:row])
        top = -2.0 * row
        axes.fill_between([0, 1], top - 1, top, color="#f4f4f4", ec=_GREY)
        name = _HEALED[:row].decode().replace(" ", "␣") or "nothing"
        axes.text(-0.02, top - 0.5, f"{name}\n[{lo}, {hi})", ha="right", va="center")
        axes.text(1.02, top - 0.5, f"{hi - lo:,} token{'s' * (hi - lo > 1)}", va="center")
        if hi - lo < 30:
            for place in range(lo, hi):
                token = trie.spell(int(trie.order[place])).decode().replace(" ", "␣")
                shown = token if len(token) < 9 else token[:6] + "…"
                middle = (place - lo + 0.5) / (hi - lo)
                size, angle = (7, 90) if hi - lo > 10 else (9, 0)
                axes.text(middle, top - 0.5, shown, rotation=angle, ha="center", va="center", fontsize=size, zorder=3)
        if row < len(_HEALED):
            inner = trie.find_interval(_HEALED[: row + 1])
            edges = [(inner.lo - lo) / (hi - lo), (inner.hi - lo) / (hi - lo)]
            axes.fill_between(edges, top - 1, top, color=_PALE, ec=_BLUE, zorder=2)
            for edge, end in zip(edges, (0, 1), strict=True):
                axes.plot([edge, end], [top - 1, top - 2], color=_BLUE, lw=0.8, ls=":")
    axes.set_xlim(-0.14, 1.12)
    axes.axis("off")
    return figure


def _draw_next(model: CharacterModel) -> Figure:
    canonical = _open(model, CoveringKind.CANONICAL)
    probabilities = {
        kind.value: np.exp(_open(model, kind).next_log_probs) for kind in (CoveringKind.CANONICAL, CoveringKind.BEAM)
    }
    probabilities["unhealed"] = np.zeros(256)
    [whole] = [bundle for bundle in canonical.bundles if not bundle.remaining_bytes]  # the text's own tokens
    probabilities["unhealed"][whole.children.bytes] = np.exp(whole.log_masses - whole.log_mass)
    figure = Figure(figsize=(9, 2.6))
    for axes, (name, probs) in zip(figure.subplots(1, 3, sharey=True), probabilities.items(), strict=True):
        values = probs[list(_BYTES)]
        axes.barh(range(len(_BYTES)), values, color=_BLUE)
        for line, value in enumerate(values):
            axes.text(value + 0.02, line, f"{value:.2g}" if value < 0.98 else f"{value:.4f}", va="center", fontsize=9)
        axes.set_title(name, loc="left", weight="bold")
        axes.set_xlim(0, 1.35)
        axes.set_xticks([0, 0.5, 1])
        axes.set_yticks(range(len(_BYTES)), ["␣" if byte == 32 else chr(byte) for byte in _BYTES])
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].invert_yaxis()
    return figure


if __name__ == "__main__":
    main()

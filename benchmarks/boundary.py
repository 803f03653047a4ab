"""How often the kept tokens are the first tokens of the finished text, and how many bytes are healed.

Each text is cut at random characters, as by a cursor. Each rule keeps some tokens of the text before the cut. A rule
recovers the cut if its kept tokens are the first tokens of the whole text, encoded by the `tokenizers` library itself.
The model has to generate the bytes after the kept tokens again.

Two tokenizers are measured: that of the default model, and one of 151,643 tokens. `figures` are those of the worse one.
"""

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from llguidance import LLInterpreter, LLTokenizer
from tokenizers import Tokenizer

from benchmarks.corpora.awkward_text import make_awkward_text
from benchmarks.corpora.languages import load_sources
from benchmarks.corpora.large_tokenizer import build_large_folder
from benchmarks.measures.report import Measured, Row, Value, find_mean, find_percent, run_parts, track
from inference.healing.covering import build_covering
from inference.healing.heal_point import encode_text, find_heal_point
from inference.healing.loaded_tokenizer import build_text_encoder
from inference.healing.text_encoder import TextEncoder
from inference.healing.tokenizer_file import read_tokenizer_file
from inference.healing.vocabulary_file import read_vocabulary
from midtoken.installed import find_default_model
from trie_cache.trie import Trie

_OURS = "midtoken"
_LLGUIDANCE = "llguidance"
_ONE_BACK, _TWO_BACK = "one token back", "two tokens back"
_FIGURES = {_OURS: "", _LLGUIDANCE: "_llguidance", _ONE_BACK: "_one_back", _TWO_BACK: "_two_back"}
_NUM_CUTS, _NUM_SHORT_CUTS = 100_000, 2_000  # with each tokenizer
_SEED = 0
_MAX_CHARS = 800  # the length of a plain text
_CUTS_PER_TEXT = 10
_AWKWARD_SHARE = 0.1  # adversarial cuts for each plain cut
_MAX_MISSED_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Rules:
    """One tokenizer, in the forms that the rules need."""

    name: str
    oracle: Tokenizer
    encoder: TextEncoder
    token_bytes: tuple[bytes, ...]
    trie: Trie
    llguidance: LLInterpreter

    @classmethod
    def load(cls, folder: Path) -> "Rules":
        """Loads the folder's tokenizer. Text that looks like a special token is encoded as text."""
        file = read_tokenizer_file(folder)
        vocabulary = read_vocabulary(folder, file.spec)
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        oracle = Tokenizer(tokenizer.model)
        oracle.pre_tokenizer = tokenizer.pre_tokenizer
        oracle.decoder = tokenizer.decoder
        return cls(
            f"{len(vocabulary.token_bytes):,} tokens",
            oracle,
            build_text_encoder(file),
            vocabulary.token_bytes,
            Trie.build(vocabulary),
            LLInterpreter(LLTokenizer(oracle.to_str(), eos_token=0), "start: /(?s:.*)/", log_level=0),
        )

    def apply(self, typed: str) -> dict[str, tuple[int, ...]]:
        """The tokens that each rule keeps."""
        ids = encode_text(self.encoder, typed)
        point = find_heal_point(self.encoder, typed)
        return {
            "none": ids,
            _ONE_BACK: ids[:-1],
            _TWO_BACK: ids[:-2],
            _LLGUIDANCE: tuple(self.llguidance.deep_copy().process_prompt(list(ids))),
            _OURS: point.kept_ids + build_covering(self.encoder, self.trie, point).common_ids,
        }


ByRule = dict[str, list[tuple[bool, int]]]  # for each cut, whether it is recovered, and the bytes to generate again


def main() -> None:
    run_parts("boundary", {"cuts": _measure_cuts})


def _measure_cuts(is_short: bool) -> Measured:
    rng, num_texts = random.Random(_SEED), (_NUM_SHORT_CUTS if is_short else _NUM_CUTS) // _CUTS_PER_TEXT
    print("looking for source code", flush=True)
    plain = list(_draw_plain_texts(load_sources(_SEED), num_texts, rng))
    awkward = [make_awkward_text(rng) for _ in range(int(num_texts * _AWKWARD_SHARE))]
    rows: list[Row] = []
    for folder in (find_default_model(), build_large_folder()):
        rules = Rules.load(folder)
        measured = {"plain": _measure(rules, plain), "adversarial": _measure(rules, awkward)}
        for rule in measured["plain"]:
            rows.append(_build_row(rule, rules.name, {kind: by_rule[rule] for kind, by_rule in measured.items()}))
    figures: dict[str, float] = {"num_cuts": num_texts * _CUTS_PER_TEXT}
    for rule, name in _FIGURES.items():  # of the worse tokenizer
        own = [row for row in rows if row["rule"] == rule]
        for kind in ("plain", "adversarial"):
            figures[f"recovered_{kind}{name}"] = min(float(row[f"{kind} recovered %"] or 0) for row in own)
        figures[f"mean_bytes{name}"] = max(float(row["plain bytes"] or 0) for row in own)
    return Measured(figures, rows)


def _draw_plain_texts(sources: Sequence[Sequence[str]], num_texts: int, rng: random.Random) -> Iterator[str]:
    """Yields pieces of files, equally many of each language."""
    for index in range(num_texts):
        text = rng.choice(sources[index % len(sources)])
        start = text.rfind("\n", 0, rng.randrange(len(text) - 200)) + 1
        yield text[start : start + _MAX_CHARS]


def _measure(rules: Rules, texts: Sequence[str]) -> ByRule:
    """Applies every rule at random cuts of each text, and prints some of the cuts that ours has missed."""
    by_rule: ByRule = defaultdict(list)
    rng = random.Random(_SEED)
    missed = []
    for text in track(texts, f"[{rules.name}]"):
        finished_ids = tuple(rules.oracle.encode(text).ids)
        for _ in range(_CUTS_PER_TEXT):
            cut = rng.randrange(1, len(text))
            typed = text[:cut]
            for name, kept_ids in rules.apply(typed).items():
                num_kept_bytes = sum(len(rules.token_bytes[token_id]) for token_id in kept_ids)
                is_recovered = finished_ids[: len(kept_ids)] == kept_ids
                by_rule[name].append((is_recovered, len(typed.encode()) - num_kept_bytes))
                if name == _OURS and not is_recovered:
                    missed.append(f"{typed[-60:]!r} | {text[cut : cut + 20]!r}")
    print(*missed[:_MAX_MISSED_SHOWN], sep="\n")
    return by_rule


def _build_row(rule: str, tokenizer: str, by_kind: Mapping[str, list[tuple[bool, int]]]) -> Row:
    row: dict[str, Value] = {"rule": rule, "tokenizer": tokenizer}
    for kind, cuts in by_kind.items():
        row |= {
            f"{kind} cuts": len(cuts),
            f"{kind} missed": sum(not is_recovered for is_recovered, _ in cuts),
            f"{kind} recovered %": find_percent(is_recovered for is_recovered, _ in cuts),
            f"{kind} bytes": find_mean(num_bytes for _, num_bytes in cuts),
        }
    return row


if __name__ == "__main__":
    main()

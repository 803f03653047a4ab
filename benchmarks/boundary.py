"""How often the kept tokens are the first tokens of the finished text, and how many bytes are healed.

Each text is cut at random characters, as by a cursor. Each rule keeps some tokens of the text before the cut. A rule
recovers the cut if its kept tokens are the first tokens of the whole text, encoded by the `tokenizers` library itself.
The model has to generate the bytes after the kept tokens again.

Two tokenizers are measured: that of the model folder, and one of 151,643 tokens. `figures` are those of the worse one.

    python -m benchmarks.boundary [--cuts 100000] [--tokenizer models/default] [--seed 0]
"""

import argparse
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from llguidance import LLInterpreter, LLTokenizer
from rich.progress import track
from tokenizers import Tokenizer

from benchmarks.corpora.awkward_text import make_awkward_text
from benchmarks.corpora.languages import load_sources
from benchmarks.corpora.large_tokenizer import build_large_folder
from benchmarks.measures.report import Row, print_rows, write_report
from inference.healing.covering import build_covering
from inference.healing.heal_point import find_heal_point
from inference.healing.loaded_tokenizer import build_text_encoder
from inference.healing.text_encoder import TextEncoder
from inference.healing.tokenizer_file import read_tokenizer_file
from inference.healing.vocabulary_file import read_vocabulary
from trie_cache.trie import Trie

_OURS = "midtoken"
_LLGUIDANCE = "llguidance"
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
        by_piece = [self.encoder.encode(piece.data) for piece in self.encoder.split(typed)]
        ids = _join(by_piece)
        point = find_heal_point(self.encoder, typed)
        return {
            "none": ids,
            "one token back": ids[:-1],
            "two tokens back": ids[:-2],
            _LLGUIDANCE: tuple(self.llguidance.deep_copy().process_prompt(list(ids))),
            "last pre-token": _join(by_piece[:-1]),
            "last two pre-tokens": _join(by_piece[:-2]),
            _OURS: point.kept_ids + build_covering(self.encoder, self.trie, point).common_ids,
        }


@dataclass(slots=True)
class Totals:
    """The results of a rule, summed over many cuts."""

    num_cuts: int = 0
    num_recovered: int = 0
    num_bytes: int = 0  # generated again

    def add(self, is_recovered: bool, num_bytes: int) -> None:
        self.num_cuts += 1
        self.num_recovered += is_recovered
        self.num_bytes += num_bytes

    @property
    def recovered(self) -> float:
        """The percentage."""
        return 100 * self.num_recovered / self.num_cuts

    @property
    def mean_bytes(self) -> float:
        return self.num_bytes / self.num_cuts


ByRule = dict[str, Totals]


def main() -> None:
    options = _parse_options()
    rng = random.Random(options.seed)
    num_texts = options.cuts // _CUTS_PER_TEXT
    plain = list(_draw_plain_texts(load_sources(options.seed), num_texts, rng))
    awkward = [make_awkward_text(rng) for _ in range(int(num_texts * _AWKWARD_SHARE))]
    rows: list[Row] = []
    measured: list[tuple[ByRule, ByRule]] = []
    for folder in (options.tokenizer, build_large_folder()):
        rules = Rules.load(folder)
        by_rule, by_rule_awkward = (_measure(rules, texts, options.seed) for texts in (plain, awkward))
        measured.append((by_rule, by_rule_awkward))
        rows += [_build_row(name, rules.name, by_rule[name], by_rule_awkward[name]) for name in by_rule]
    print_rows("Kept tokens begin the finished text's tokens", rows)
    write_report("boundary", rows, _find_figures(measured))


def _draw_plain_texts(sources: Sequence[Sequence[str]], num_texts: int, rng: random.Random) -> Iterator[str]:
    """Yields pieces of files, equally many of each language."""
    for index in range(num_texts):
        text = rng.choice(sources[index % len(sources)])
        start = text.rfind("\n", 0, rng.randrange(len(text) - 200)) + 1
        yield text[start : start + _MAX_CHARS]


def _measure(rules: Rules, texts: Sequence[str], seed: int) -> ByRule:
    """Applies every rule at random cuts of each text, and prints some of the cuts that ours has missed."""
    by_rule: ByRule = defaultdict(Totals)
    rng = random.Random(seed)
    missed = []
    for text in track(texts, f"[{rules.name}]"):
        finished_ids = tuple(rules.oracle.encode(text).ids)
        for _ in range(_CUTS_PER_TEXT):
            cut = rng.randrange(1, len(text))
            typed = text[:cut]
            for name, kept_ids in rules.apply(typed).items():
                num_kept_bytes = sum(len(rules.token_bytes[token_id]) for token_id in kept_ids)
                is_recovered = finished_ids[: len(kept_ids)] == kept_ids
                by_rule[name].add(is_recovered, len(typed.encode()) - num_kept_bytes)
                if name == _OURS and not is_recovered:
                    missed.append(f"{typed[-60:]!r} | {text[cut : cut + 20]!r}")
    print(*missed[:_MAX_MISSED_SHOWN], sep="\n")
    return by_rule


def _join(parts: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(chain.from_iterable(parts))


def _build_row(rule: str, tokenizer: str, plain: Totals, adversarial: Totals) -> Row:
    return {
        "rule": rule,
        "tokenizer": tokenizer,
        "plain cuts": plain.num_cuts,
        "missed": plain.num_cuts - plain.num_recovered,
        "recovered %": plain.recovered,
        "bytes": plain.mean_bytes,
        "adversarial cuts": adversarial.num_cuts,
        "adversarial missed": adversarial.num_cuts - adversarial.num_recovered,
        "adversarial recovered %": adversarial.recovered,
        "adversarial bytes": adversarial.mean_bytes,
    }


def _find_figures(measured: Sequence[tuple[ByRule, ByRule]]) -> dict[str, float | bool | None]:
    """The figures of the worse tokenizer."""

    def worst(choose: Callable[[Iterable[float]], float], rule: str, name: str) -> float:
        return choose(getattr(plain[rule], name) for plain, _ in measured)

    return {
        "num_cuts": measured[0][0][_OURS].num_cuts,
        "recovered_plain": worst(min, _OURS, "recovered"),
        "recovered_adversarial": min(adversarial[_OURS].recovered for _, adversarial in measured),
        "mean_bytes": worst(max, _OURS, "mean_bytes"),
        "llguidance_recovered": worst(min, _LLGUIDANCE, "recovered"),
        "llguidance_mean_bytes": worst(max, _LLGUIDANCE, "mean_bytes"),
    }


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuts", type=int, default=100_000, help="plain cuts with each tokenizer")
    parser.add_argument("--tokenizer", type=Path, default=Path("models/default"), help="folder with a tokenizer.json")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()

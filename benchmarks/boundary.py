"""How often the kept tokens are the first tokens of the finished text, and how many bytes are healed.

Each text is cut at random characters, as by a cursor. Each rule keeps some tokens of the text before the cut. A rule
recovers the cut if its kept tokens are the first tokens of the whole text, encoded by the `tokenizers` library itself.
The model has to generate the bytes after the kept tokens again.

Two tokenizers are measured: that of the model folder, and one of 151,643 tokens. `figures` are those of the worse one.

    python -m benchmarks.boundary [--cuts 100000] [--tokenizer models/default] [--seed 0]
"""

import argparse
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from llguidance import LLInterpreter, LLTokenizer
from matplotlib.figure import Figure
from rich.progress import track
from tokenizers import Tokenizer

from benchmarks.corpora.awkward_text import make_awkward_text
from benchmarks.corpora.languages import Sources, load_sources
from benchmarks.corpora.large_tokenizer import build_large_folder
from benchmarks.measures.report import Row, print_rows, write_report
from inference.healing.covering import CoveringTree, build_covering
from inference.healing.heal_point import find_heal_point
from inference.healing.loaded_tokenizer import load_text_encoder
from inference.healing.text_encoder import TextEncoder
from trie_cache.trie import Trie
from trie_cache.vocabulary import Vocabulary

_OURS = "midtoken"
_LLGUIDANCE = "llguidance"
_PLAIN, _ADVERSARIAL = "plain", "adversarial"
_MAX_CHARS = 800  # the length of a plain text
_CUTS_PER_TEXT = 10
_AWKWARD_SHARE = 0.1  # adversarial cuts for each plain cut
_NUM_REPEATS = 3  # the fastest counts, in processor time, because other programs may be running
_NUM_TIMED = 1_000
_TIMED_CHARS = 4_096
_MAX_FAILURES_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Subject:
    """One tokenizer, in the forms that the rules need."""

    name: str
    oracle: Tokenizer
    encoder: TextEncoder
    token_bytes: tuple[bytes, ...]
    trie: Trie
    llguidance: LLInterpreter


@dataclass(frozen=True, slots=True)
class Text:
    """A whole text, and where it is cut."""

    kind: str  # plain or adversarial
    language: str
    text: str
    cuts: tuple[int, ...]  # in characters, between the first and the last


@dataclass(slots=True)
class Totals:
    """The results of a rule, summed over many cuts."""

    num_cuts: int = 0
    num_recovered: int = 0
    num_bytes: int = 0  # generated again

    @property
    def recovered(self) -> float:
        return 100 * self.num_recovered / self.num_cuts

    @property
    def mean_bytes(self) -> float:
        return self.num_bytes / self.num_cuts


@dataclass(slots=True)
class CoveringTotals:
    """The crossings that finished texts take in our covering trees, summed over many cuts."""

    num_crossed_once: int = 0  # cuts whose finished text takes exactly one crossing
    num_nodes: list[int] = field(default_factory=list)
    build_us: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Outcome:
    """All measurements with one tokenizer."""

    name: str
    by_rule: dict[tuple[str, str], Totals] = field(default_factory=lambda: defaultdict(Totals))  # (kind, rule)
    by_language: dict[str, Totals] = field(default_factory=lambda: defaultdict(Totals))  # ours
    coverings: dict[str, CoveringTotals] = field(default_factory=lambda: defaultdict(CoveringTotals))  # by kind
    split_us: list[float] = field(default_factory=list)
    heal_us: list[float] = field(default_factory=list)  # beyond the split, of the same texts
    failures: list[str] = field(default_factory=list)


def main() -> None:
    options = _parse_options()
    sources = load_sources(options.seed)
    texts = list(_draw_texts(sources, options.cuts, random.Random(options.seed)))
    outcomes = []
    for folder in (options.tokenizer, build_large_folder()):
        subject = load_subject(folder)
        outcome = measure(subject, texts)
        measure_times(subject, sources, random.Random(options.seed), outcome)
        outcomes.append(outcome)
    _report(outcomes, sources)


def load_subject(folder: Path) -> Subject:
    """Loads the folder's tokenizer. Text that looks like a special token is encoded as text."""
    vocabulary = Vocabulary.from_folder(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    oracle = Tokenizer(tokenizer.model)
    oracle.pre_tokenizer = tokenizer.pre_tokenizer
    oracle.decoder = tokenizer.decoder
    return Subject(
        f"{len(vocabulary.token_bytes):,} tokens",
        oracle,
        load_text_encoder(folder),
        vocabulary.token_bytes,
        Trie.build(vocabulary),
        LLInterpreter(LLTokenizer(oracle.to_str(), eos_token=0), "start: /(?s:.*)/", log_level=0),
    )


def measure(subject: Subject, texts: list[Text]) -> Outcome:
    """Applies every rule at every cut, and follows the finished text through our covering tree."""
    outcome = Outcome(subject.name)
    num_bytes = [len(token) for token in subject.token_bytes]
    for text in track(texts, f"[{subject.name}]"):
        finished_ids = tuple(subject.oracle.encode(text.text).ids)
        for cut in text.cuts:
            typed = text.text[:cut]
            num_typed_bytes = len(typed.encode())
            ours, covering = _heal(subject, typed, outcome.coverings[text.kind])
            for rule, kept_ids in _apply_rules(subject, typed, ours).items():
                is_recovered = finished_ids[: len(kept_ids)] == kept_ids
                num_kept_bytes = sum(map(num_bytes.__getitem__, kept_ids))
                counted = [outcome.by_rule[text.kind, rule]]
                if rule == _OURS and text.kind == _PLAIN:
                    counted.append(outcome.by_language[text.language])
                for totals in counted:
                    totals.num_cuts += 1
                    totals.num_recovered += is_recovered
                    totals.num_bytes += num_typed_bytes - num_kept_bytes
                if rule == _OURS and not is_recovered:
                    outcome.failures.append(f"boundary: {typed[-60:]!r} | {text.text[cut : cut + 20]!r}")
            later_ids = finished_ids[len(ours) :]
            num_crossings = _count_crossings(subject, covering, later_ids, outcome.coverings[text.kind])
            if num_crossings != 1:
                outcome.failures.append(f"{num_crossings} crossings: {typed[-60:]!r} | {text.text[cut : cut + 20]!r}")
    return outcome


def measure_times(subject: Subject, sources: list[Sources], rng: random.Random, outcome: Outcome) -> None:
    """Measures how long it takes to split 4 kB of text into pre-tokens, and to find the heal point after that."""
    texts = [text for source in sources for text in source.texts if len(text) > _TIMED_CHARS]
    for _ in range(_NUM_TIMED):
        text = rng.choice(texts)
        end = rng.randint(_TIMED_CHARS, len(text))
        typed = text[end - _TIMED_CHARS : end]
        split_us = _time_us(lambda typed=typed: subject.encoder.split(typed))  # type: ignore[misc]
        heal_us = _time_us(lambda typed=typed: find_heal_point(subject.encoder, typed))  # type: ignore[misc]
        outcome.split_us.append(split_us)
        outcome.heal_us.append(heal_us - split_us)


def _heal(subject: Subject, typed: str, totals: CoveringTotals) -> tuple[tuple[int, ...], CoveringTree]:
    """Returns the tokens that midtoken keeps, and the covering tree after them."""
    point = find_heal_point(subject.encoder, typed)
    started = time.thread_time()
    covering = build_covering(subject.encoder, subject.trie, point)
    totals.build_us.append(1e6 * (time.thread_time() - started))
    return point.kept_ids + covering.common_ids, covering


def _apply_rules(subject: Subject, typed: str, ours: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Returns the tokens that each rule keeps."""
    by_piece = [subject.encoder.encode(piece.data) for piece in subject.encoder.split(typed)]
    ids = _join(by_piece)
    return {
        "none": ids,
        "one token back": ids[:-1],
        "two tokens back": ids[:-2],
        _LLGUIDANCE: tuple(subject.llguidance.deep_copy().process_prompt(list(ids))),
        "last pre-token": _join(by_piece[:-1]),
        "last two pre-tokens": _join(by_piece[:-2]),
        _OURS: ours,
    }


def _count_crossings(
    subject: Subject, covering: CoveringTree, later_ids: tuple[int, ...], totals: CoveringTotals
) -> int:
    """Returns how many crossings of the covering tree the finished text's tokens after the kept ones take."""
    tree = covering.build_tree((0,))
    totals.num_nodes.append(len(tree.branch_ids))
    edges = {
        (parent, token_id): node
        for node, (parent, token_id) in enumerate(zip(tree.parents, tree.branch_ids, strict=True))
    }
    remaining_bytes = defaultdict(list)
    for crossing in covering.crossings:
        remaining_bytes[crossing.node].append(crossing.remaining_bytes)
    node: int | None = None
    num_crossings = 0
    for token_id in later_ids:
        num_crossings += sum(_crosses(subject.token_bytes[token_id], remaining) for remaining in remaining_bytes[node])
        if (node, token_id) not in edges:
            break
        node = edges[node, token_id]
    totals.num_crossed_once += num_crossings == 1
    return num_crossings


def _crosses(token: bytes, remaining_bytes: bytes) -> bool:
    """True if the token spells the remaining bytes and more."""
    return not remaining_bytes or (token.startswith(remaining_bytes) and len(token) > len(remaining_bytes))


def _draw_texts(sources: list[Sources], num_cuts: int, rng: random.Random) -> Iterator[Text]:
    """Yields pieces of files, with the same number of cuts in each language; then awkward texts."""
    num_texts = num_cuts // _CUTS_PER_TEXT
    for index in range(num_texts):
        source = sources[index % len(sources)]
        text = rng.choice(source.texts)
        start = text.rfind("\n", 0, rng.randrange(len(text) - 200)) + 1
        yield _cut(_PLAIN, source.language, text[start : start + _MAX_CHARS], rng)
    for _ in range(int(num_texts * _AWKWARD_SHARE)):
        yield _cut(_ADVERSARIAL, "", make_awkward_text(rng), rng)


def _cut(kind: str, language: str, text: str, rng: random.Random) -> Text:
    return Text(kind, language, text, tuple(rng.randrange(1, len(text)) for _ in range(_CUTS_PER_TEXT)))


def _join(parts: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(chain.from_iterable(parts))


def _time_us(run: Callable[[], object]) -> float:
    seconds = []
    for _ in range(_NUM_REPEATS):
        started = time.thread_time()
        run()
        seconds.append(time.thread_time() - started)
    return 1e6 * min(seconds)


def _report(outcomes: list[Outcome], sources: list[Sources]) -> None:
    for outcome in outcomes:
        rules = [_rule_row(outcome, rule) for kind, rule in outcome.by_rule if kind == _PLAIN]
        print_rows(f"Kept tokens begin the finished text's tokens: {outcome.name}", rules)
    languages = [_language_row(source, outcomes) for source in sources]
    print_rows("midtoken, by language", languages)
    coverings = [_covering_row(outcome, kind) for outcome in outcomes for kind in outcome.coverings]
    print_rows("The finished text takes one crossing of the covering tree", coverings)
    times = [_time_row(outcome) for outcome in outcomes]
    print_rows(f"Time after {_TIMED_CHARS:,} characters, µs of processor time", times)
    for failure in list(chain.from_iterable(outcome.failures for outcome in outcomes))[:_MAX_FAILURES_SHOWN]:
        print(failure)
    all_rules = [_rule_row(outcome, rule) for outcome in outcomes for kind, rule in outcome.by_rule if kind == _PLAIN]
    rows = [*all_rules, *languages, *coverings, *times]
    write_report("boundary", rows, _find_figures(outcomes), _draw_picture(outcomes))


def _rule_row(outcome: Outcome, rule: str) -> Row:
    plain, adversarial = outcome.by_rule[_PLAIN, rule], outcome.by_rule[_ADVERSARIAL, rule]
    return {
        "rule": rule,
        "tokenizer": outcome.name,
        "plain cuts": plain.num_cuts,
        "missed": plain.num_cuts - plain.num_recovered,
        "recovered %": plain.recovered,
        "bytes": plain.mean_bytes,
        "adversarial cuts": adversarial.num_cuts,
        "adversarial missed": adversarial.num_cuts - adversarial.num_recovered,
        "adversarial recovered %": adversarial.recovered,
        "adversarial bytes": adversarial.mean_bytes,
    }


def _language_row(source: Sources, outcomes: list[Outcome]) -> Row:
    row: dict[str, str | float] = {
        "language": source.language,
        "files": "generated" if source.are_generated else str(len(source.texts)),
        "cuts": outcomes[0].by_language[source.language].num_cuts,
    }
    for outcome in outcomes:
        totals = outcome.by_language[source.language]
        row[f"missed, {outcome.name}"] = totals.num_cuts - totals.num_recovered
        row[f"bytes, {outcome.name}"] = totals.mean_bytes
    return row


def _covering_row(outcome: Outcome, kind: str) -> Row:
    totals = outcome.coverings[kind]
    return {
        "tokenizer": outcome.name,
        "texts": kind,
        "cuts": len(totals.num_nodes),
        "otherwise": len(totals.num_nodes) - totals.num_crossed_once,
        "mean nodes": statistics.fmean(totals.num_nodes),
        "most nodes": max(totals.num_nodes),
        "build p50 µs": statistics.median(totals.build_us),
        "build p99 µs": _find_p99(totals.build_us),
    }


def _time_row(outcome: Outcome) -> Row:
    return {
        "tokenizer": outcome.name,
        "splitting the text, p50": statistics.median(outcome.split_us),
        "p99": _find_p99(outcome.split_us),
        "the heal point beyond that, p50": statistics.median(outcome.heal_us),
        "beyond, p99": _find_p99(outcome.heal_us),
    }


def _find_figures(outcomes: list[Outcome]) -> Mapping[str, float]:
    """Returns the figures of the worse tokenizer."""

    def worst(choose: Callable[[Iterable[float]], float], kind: str, rule: str, name: str) -> float:
        return choose(getattr(outcome.by_rule[kind, rule], name) for outcome in outcomes)

    return {
        "num_cuts": min(outcome.by_rule[_PLAIN, _OURS].num_cuts for outcome in outcomes),
        "recovered_plain": worst(min, _PLAIN, _OURS, "recovered"),
        "recovered_adversarial": worst(min, _ADVERSARIAL, _OURS, "recovered"),
        "mean_bytes": worst(max, _PLAIN, _OURS, "mean_bytes"),
        "llguidance_recovered": worst(min, _PLAIN, _LLGUIDANCE, "recovered"),
        "llguidance_mean_bytes": worst(max, _PLAIN, _LLGUIDANCE, "mean_bytes"),
    }


def _find_p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[-1]


def _draw_picture(outcomes: list[Outcome]) -> Figure:
    """Draws how many cuts each rule misses, and how many bytes have to be generated again."""
    figure = Figure(figsize=(9, 4.5))
    lost_axes, bytes_axes = figure.subplots(1, 2, sharey=True)
    rules = [rule for kind, rule in outcomes[0].by_rule if kind == _PLAIN]
    bars = [(outcome, kind) for outcome in outcomes for kind in (_PLAIN, _ADVERSARIAL)]
    height = 0.8 / len(bars)
    for index, (outcome, kind) in enumerate(bars):
        counted = [outcome.by_rule[kind, rule] for rule in rules]
        places = [place + (index - (len(bars) - 1) / 2) * height for place in range(len(rules))]
        lost_axes.barh(places, [100 - totals.recovered for totals in counted], height, label=f"{outcome.name}, {kind}")
        bytes_axes.barh(places, [totals.mean_bytes for totals in counted], height)
    lost_axes.set_yticks(range(len(rules)), rules)
    lost_axes.set_xscale("symlog", linthresh=0.01)
    lost_axes.set_xlabel("cuts lost, % (logarithmic above 0.01)")
    bytes_axes.set_xlabel("bytes generated again, mean")
    lost_axes.invert_yaxis()
    figure.legend(*lost_axes.get_legend_handles_labels(), loc="upper center", ncols=len(bars), fontsize="small")
    return figure


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuts", type=int, default=100_000, help="plain cuts with each tokenizer")
    parser.add_argument("--tokenizer", type=Path, default=Path("models/default"), help="folder with a tokenizer.json")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()

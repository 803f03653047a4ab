"""How often the kept tokens are the first tokens of the finished text, and how many bytes are healed.

Each text is cut at random characters, as by a cursor. Each rule keeps some tokens of the text before the cut. A rule
recovers the cut if its kept tokens are the first tokens of the whole text, encoded by the `tokenizers` library itself.
The model has to generate the bytes after the kept tokens again.

Two tokenizers are measured: that of the bundled model, and one of 151,643 tokens. `figures` are those of the worse one.
"""

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from llguidance import LLInterpreter, LLTokenizer
from tokenizers import Tokenizer

from benchmarks.corpora.languages import load_sources
from benchmarks.corpora.large_tokenizer import build_large_folder
from benchmarks.measures.report import Measured, Row, find_mean, find_percent, run_parts, track
from inference.healing.covering import build_covering
from inference.healing.heal_point import encode_text, find_heal_point
from inference.healing.loaded_tokenizer import build_text_encoder
from inference.healing.tokenizer_file import read_tokenizer_file
from inference.healing.vocabulary_file import read_vocabulary
from midtoken.installed import find_bundled_model
from trie_cache.trie import Trie

_NUM_CUTS, _NUM_SHORT_CUTS = 100_000, 2_000  # with each tokenizer
_SEED = 0
_MAX_CHARS = 800  # of a text
_CUTS_PER_TEXT = 10
_RULES = {"": "midtoken", "_llguidance": "llguidance", "_one_back": "one token back", "_two_back": "two tokens back"}


class Rules:
    """One tokenizer, and the rules."""

    def __init__(self, folder: Path) -> None:
        """Loads the folder's tokenizer. Text that looks like a special token is encoded as text."""
        file = read_tokenizer_file(folder)
        vocabulary = read_vocabulary(folder, file.spec)
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.oracle = Tokenizer(tokenizer.model)
        self.oracle.pre_tokenizer, self.oracle.decoder = tokenizer.pre_tokenizer, tokenizer.decoder
        self.token_bytes = vocabulary.token_bytes
        self._encoder, self._trie = build_text_encoder(file), Trie.build(vocabulary)
        any_text = "start: /(?s:.*)/"
        self._llguidance = LLInterpreter(LLTokenizer(self.oracle.to_str(), eos_token=0), any_text, log_level=0)

    def apply(self, typed: str) -> dict[str, tuple[int, ...]]:
        """The tokens that each rule keeps."""
        ids = encode_text(self._encoder, typed)
        point = find_heal_point(self._encoder, typed)
        return {
            "_one_back": ids[:-1],
            "_two_back": ids[:-2],
            "_llguidance": tuple(self._llguidance.deep_copy().process_prompt(list(ids))),
            "": point.kept_ids + build_covering(self._encoder, self._trie, point).common_ids,
        }


def main() -> None:
    run_parts("boundary", {"cuts": _measure_cuts})


def _measure_cuts(is_short: bool) -> list[Measured]:
    num_texts = (_NUM_SHORT_CUTS if is_short else _NUM_CUTS) // _CUTS_PER_TEXT
    print("looking for source code", flush=True)
    texts = [*_draw_texts(load_sources(), num_texts, random.Random(_SEED))]
    rows = [row for folder in (find_bundled_model(), build_large_folder()) for row in _measure(Rules(folder), texts)]
    figures: dict[str, float] = {"num_cuts": num_texts * _CUTS_PER_TEXT}
    for end, rule in _RULES.items():  # of the worse tokenizer
        own = [row for row in rows if row["rule"] == rule]
        figures[f"recovered_plain{end}"] = min(float(row["recovered %"] or 0) for row in own)
        figures[f"mean_bytes{end}"] = max(float(row["bytes"] or 0) for row in own)
    return [Measured(figures, rows)]


def _draw_texts(sources: Sequence[Sequence[str]], num_texts: int, rng: random.Random) -> Iterator[str]:
    """Yields pieces of files, equally many of each language."""
    for index in range(num_texts):
        text = rng.choice(sources[index % len(sources)])
        start = text.rfind("\n", 0, rng.randrange(len(text) - 200)) + 1
        yield text[start : start + _MAX_CHARS]


def _measure(rules: Rules, texts: Sequence[str]) -> Iterator[Row]:
    """Yields a row for each rule, applied at random cuts of each text."""
    found: dict[str, list[tuple[bool, int]]] = defaultdict(list)  # whether it is recovered, and the bytes to heal
    rng, name = random.Random(_SEED), f"{len(rules.token_bytes):,} tokens"
    for text in track(texts, name):
        finished_ids = tuple(rules.oracle.encode(text).ids)
        for _ in range(_CUTS_PER_TEXT):
            typed = text[: rng.randrange(1, len(text))]
            for rule, kept_ids in rules.apply(typed).items():
                num_kept_bytes = sum(len(rules.token_bytes[token_id]) for token_id in kept_ids)
                is_recovered = finished_ids[: len(kept_ids)] == kept_ids
                found[rule].append((is_recovered, len(typed.encode()) - num_kept_bytes))
    for rule, cuts in found.items():
        shares = {"recovered %": find_percent(each for each, _ in cuts), "bytes": find_mean(num for _, num in cuts)}
        yield {"rule": _RULES[rule], "tokenizer": name, **shares}


if __name__ == "__main__":
    main()

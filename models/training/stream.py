"""Rows of token ids for training: pieces of source files, some of them as fill-in-the-middle examples."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tokenizers import Tokenizer

from models.training.corpus import SourceFile

FIM_PREFIX, FIM_SUFFIX, FIM_MIDDLE = "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"
END_OF_TEXT = "<|endoftext|>"
SPECIAL_TOKENS = (END_OF_TEXT, FIM_PREFIX, FIM_MIDDLE, FIM_SUFFIX, "<|fim_pad|>")

_CHARS_PER_TOKEN = 3.7
_FIM_SHARE = 0.4


@dataclass(slots=True)
class TrainingStream:
    """An endless, seeded stream of token ids. Checkpoints contain it, so that training resumes at the same place."""

    seed: int
    row_tokens: int
    num_pieces: int = 0
    _left_over: list[int] = field(default_factory=list)

    def take_rows(
        self,
        count: int,
        files: Sequence[SourceFile],
        running_weights: Sequence[float],
        encode: Callable[[str, random.Random], list[int]],
    ) -> list[list[int]]:
        """Returns the next `count` rows of `row_tokens + 1` ids. `running_weights` are cumulative file weights."""
        width = self.row_tokens + 1
        rows: list[list[int]] = []
        while len(rows) < count:
            while len(self._left_over) < width:
                rng = random.Random(f"{self.seed}/{self.num_pieces}")
                self.num_pieces += 1
                [file] = rng.choices(files, cum_weights=running_weights)
                self._left_over += encode(_cut_piece(file.text, self.row_tokens, rng), rng)
            rows.append(self._left_over[:width])
            del self._left_over[: width - 1]
        return rows


def build_encoder(tokenizer: Tokenizer) -> Callable[[str, random.Random], list[int]]:
    """Returns an encoder of pieces. It turns two pieces in five into fill-in-the-middle examples."""
    special = {name: _find_id(tokenizer, name) for name in SPECIAL_TOKENS}

    def plain(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False).ids)

    def encode(text: str, rng: random.Random) -> list[int]:
        end = [special[END_OF_TEXT]]
        if rng.random() >= _FIM_SHARE:
            return plain(text) + end
        start, stop = _cut_middle(text, rng)
        prefix, middle, suffix = text[:start], text[start:stop], text[stop:]
        prefix_ids, middle_ids = _split_at(prefix, middle, plain, rng)
        suffix_ids = [special[FIM_SUFFIX], *plain(suffix)]
        if rng.random() < 0.5:
            body = [special[FIM_PREFIX], *prefix_ids, *suffix_ids, special[FIM_MIDDLE]]
        else:
            body = [special[FIM_PREFIX], *suffix_ids, special[FIM_MIDDLE], *prefix_ids]
        return body + middle_ids + end

    return encode


def _find_id(tokenizer: Tokenizer, name: str) -> int:
    token_id = tokenizer.token_to_id(name)
    if token_id is None:
        raise ValueError(f"the tokenizer has no token {name}")
    return token_id


def _split_at(
    prefix: str, middle: str, plain: Callable[[str], list[int]], rng: random.Random
) -> tuple[list[int], list[int]]:
    """Returns the ids of prefix and middle. Half of the cuts are between tokens, as after healing, others anywhere."""
    if rng.random() < 0.5:
        return plain(prefix), plain(middle)
    joined = plain(prefix + middle)
    num_kept = max(len(plain(prefix)) - rng.randint(1, 3), 0)
    return joined[:num_kept], joined[num_kept:]


def _cut_piece(text: str, row_tokens: int, rng: random.Random) -> str:
    """Returns a piece of about one row at most, from the start of a line on; or the whole text if it is short."""
    length = int(row_tokens * _CHARS_PER_TOKEN * rng.uniform(0.4, 1.0))
    if len(text) <= length:
        return text
    start = rng.randrange(len(text) - length // 2)
    start = 0 if start < length // 4 else text.find("\n", start) + 1
    return text[start : start + length]


def _cut_middle(text: str, rng: random.Random) -> tuple[int, int]:
    """Returns where the middle starts and stops. It stops at the end of the line, some lines later, or anywhere."""
    start = rng.randrange(len(text)) if text else 0
    kind = rng.random()
    if kind < 0.7:
        stop = start
        for _ in range(1 if kind < 0.4 else rng.randint(2, 8)):
            stop = text.find("\n", stop + 1)
            if stop < 0:
                return start, len(text)
        return start, stop
    return start, rng.randint(start, len(text))

"""The bytes of every token."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The bytes of every token, and the ids that are not text.

    Different ids may have the same bytes: SentencePiece has both `<0x41>` and `A`.
    """

    token_bytes: tuple[bytes, ...]  # indexed by id, one per row of the model's head; empty for an id that is not text
    special_tokens: Mapping[str, int]  # name -> id of special, added and control tokens
    special_ids: frozenset[int]  # these ids and `end_ids`; not the padding rows
    end_ids: frozenset[int]  # the ids that end a text

    @property
    def num_rows(self) -> int:
        """The number of rows of the model's head. A row without a token is padding and has empty bytes."""
        return len(self.token_bytes)

    def has(self, token_id: int) -> bool:
        """True for a token, text or not; false for padding."""
        return 0 <= token_id < self.num_rows and (bool(self.token_bytes[token_id]) or token_id in self.special_ids)

    def special_id(self, name: str) -> int | None:
        """The id of the special token called `name`, or None if there is no such token."""
        return self.special_tokens.get(name)

    @classmethod
    def from_tokens(
        cls,
        tokens: Mapping[int, bytes],
        special_tokens: Mapping[str, int],
        end_ids: Iterable[int] = (),
        num_rows: int | None = None,
    ) -> "Vocabulary":
        """The vocabulary of `tokens` (id -> bytes). `special_tokens` (name -> id) and `end_ids` are not text.

        `num_rows`: the rows of the model's head; by default the largest id plus one. Special tokens without a row are
        dropped: the model can neither read nor write them.
        Raises ValueError if an ordinary token has no row.
        """
        end_ids = frozenset(end_ids)
        special_ids = end_ids.union(special_tokens.values())
        if num_rows is None:
            num_rows = max([*tokens, *special_ids], default=-1) + 1
        token_bytes = [b""] * num_rows
        for token_id, text in tokens.items():
            if token_id in special_ids:
                continue
            if not 0 <= token_id < num_rows:
                raise ValueError(f"token {text!r} has id {token_id}, but the model's head has {num_rows} rows")
            token_bytes[token_id] = text
        rows = range(num_rows)
        return cls(
            token_bytes=tuple(token_bytes),
            special_tokens={name: token_id for name, token_id in special_tokens.items() if token_id in rows},
            special_ids=special_ids.intersection(rows),
            end_ids=end_ids.intersection(rows),
        )

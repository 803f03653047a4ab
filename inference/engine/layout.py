"""The layouts of a fill-in-the-middle prompt: the order of its sections, and what follows the last marker.

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
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate


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

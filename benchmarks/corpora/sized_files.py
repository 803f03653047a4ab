"""Held-out files of given sizes in tokens. Where no file is long enough, several are joined."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from models.training.corpus import SourceFile

_TOLERANCE = 0.1


@dataclass(frozen=True, slots=True)
class SizedFile:
    """A text of about `num_tokens` tokens."""

    text: str
    num_tokens: int  # the size that was asked for


def find_sized_files(
    files: Iterable[SourceFile], sizes: Sequence[int], num_each: int, count_tokens: Callable[[str], int]
) -> list[SizedFile]:
    """Returns up to `num_each` files for each size, the nearest first: at least one, which may be joined ones.

    A file's size is off by at most a tenth. Files with other line ends than a line feed are not used. Raises ValueError
    if all files together are too short.
    """
    counted = [(count_tokens(file.text), file) for file in files if not {"\r", "\f"} & set(file.text)]
    found = []
    for size in sizes:
        near = [(num, file) for num, file in counted if abs(num - size) <= _TOLERANCE * size]
        near.sort(key=lambda each: (abs(each[0] - size), each[1].path))
        found += [SizedFile(file.text, size) for _, file in near[:num_each]] or [_join(counted, size)]
    return found


def _join(counted: list[tuple[int, SourceFile]], size: int) -> SizedFile:
    """The longest file that is not too long, the longest that still fits after it, and so on."""
    joined, num_tokens = [], 0
    for num, file in sorted(counted, key=lambda each: (-each[0], each[1].path)):
        if num_tokens + num <= size:
            joined.append(file)
            num_tokens += num
    if num_tokens < (1 - _TOLERANCE) * size:
        raise ValueError(f"the files have {num_tokens:,} tokens together; {size:,} are needed")
    return SizedFile("\n\n".join(file.text for file in joined), size)

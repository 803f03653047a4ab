"""The rows and the score of `midtoken demo`. tests/e2e/test_commands.py plays it."""

import pytest
from rich.console import Console, Group

from midtoken.commands.demo import draw_row, find_rest


@pytest.mark.parametrize(
    ("line", "rest"),
    [
        ("    return self.▏queue", ""),  # nothing of it is typed yet
        ("    return self.q▏ueue[0]", "ueue"),
        ("    return self.queue▏[0]", ""),
        ("    ret▏urn self", "urn"),
        ("    return 12▏34", ""),
    ],
)
def test_only_what_follows_inside_a_word_counts(line: str, rest: str) -> None:
    before, _, after = line.partition("▏")
    assert find_rest(before + after, len(before)) == rest


@pytest.mark.parametrize("num_cells", [40, 60, 80, 120])
@pytest.mark.parametrize("num_typed", [1, 30, 200])
@pytest.mark.parametrize("ghost", ["", "ab", "ab" * 100])
def test_the_cursor_and_the_beginning_of_the_ghost_text_are_visible(num_cells: int, num_typed: int, ghost: str) -> None:
    console = Console(width=num_cells)
    with console.capture() as shown:
        console.print(Group(draw_row("unhealed", 12.3, "x" * num_typed, ghost, "", num_cells)))
    row = shown.get().rstrip("\n")
    assert len(row) <= num_cells
    assert f"x▏{ghost[:2]}" in row
    assert ("…" in row) == (len(ghost) == 200 or "x" * num_typed not in row)

"""From arguments to a request to the character-level model."""

import argparse
from pathlib import Path

import pytest

from inference.errors import InvalidRequestError
from inference.protocol.characters import CharacterRequest, CoveringKind
from midtoken.arguments.character_request import add_character_arguments, build_request, read_context


def _parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_character_arguments(parser)
    return parser.parse_args(arguments)


def test_without_arguments_the_request_has_the_protocols_defaults() -> None:
    assert build_request(_parse(), b"text") == CharacterRequest(b"text")


def test_each_argument_is_in_the_request() -> None:
    request = build_request(_parse("--covering", "beam", "--width", "3", "--threshold", "0.5"), b"a", num_members=2)
    assert request == CharacterRequest(b"a", covering=CoveringKind.BEAM, width=3, threshold=0.5, num_members=2)


@pytest.mark.parametrize("kind", CoveringKind)
def test_each_covering_can_be_chosen(kind: CoveringKind) -> None:
    assert build_request(_parse("--covering", str(kind)), b"a").covering is kind


def test_a_width_out_of_range_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="width must be between 1 and 1024, not 0"):
        build_request(_parse("--covering", "beam", "--width", "0"), b"a")


def test_the_context_is_the_file_that_is_named(tmp_path: Path) -> None:
    path = tmp_path / "context"
    path.write_bytes(b"\xff before")
    assert (read_context(_parse("--context", str(path))), read_context(_parse())) == (b"\xff before", b"")

"""docs/no_suggestion.md lists the reasons that the language server has."""

import re
from pathlib import Path

from lsp_server.no_suggestion import Reason

_PAGE = Path(__file__).parents[2] / "docs/no_suggestion.md"


def test_every_reason_is_on_the_page() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", _PAGE.read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(Reason)

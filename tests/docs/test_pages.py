"""The figures of the docs are those of benchmarks/results, and links lead somewhere."""

import re
import subprocess
from pathlib import Path

import pytest

from docs.write_figures import PAGES, write_figures

_ROOT = Path(__file__).parents[2]
_TRACKED = subprocess.run(["git", "ls-files", "*.md"], cwd=_ROOT, capture_output=True, text=True).stdout.split()


@pytest.mark.parametrize("page", PAGES)
def test_figures_are_those_of_the_results(page: str) -> None:
    text = (_ROOT / page).read_text()
    assert text == write_figures(page, text)[0], "run `make figures`"


@pytest.mark.parametrize("page", _TRACKED)
def test_links_lead_to_files_and_headings(page: str) -> None:
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", (_ROOT / page).read_text()):
        path, _, anchor = link.partition("#")
        target = _ROOT / page if not path else (_ROOT / page).parent / path
        assert target.exists(), link
        assert not anchor or anchor in _find_anchors(target.read_text()), link


def _find_anchors(text: str) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.*)", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}

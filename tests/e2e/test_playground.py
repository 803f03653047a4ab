"""What a person sees on the page of a real `midtoken playground` in Chromium, and what others are refused."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.playground import MISSING, PlaygroundPage, RunningPlayground, open_page, run_playground
from tests.support.servers import RunningServer, find_processes

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

if MISSING is not None:
    pytest.skip(MISSING, allow_module_level=True)


@pytest.fixture(scope="module")
def playground(real_server: RunningServer) -> Iterator[RunningPlayground]:
    with run_playground(f"--server={real_server.url}") as playground:
        yield playground


@pytest.fixture(scope="module")
def chromium(playground: RunningPlayground) -> Iterator[PlaygroundPage]:
    """Chromium, with the page of the playground until a test opens another one."""
    with open_page(playground.url) as page:
        yield page


@pytest.fixture
def page(chromium: PlaygroundPage) -> Iterator[PlaygroundPage]:
    """The page, which must not cause an error in the browser."""
    yield chromium
    assert chromium.act("problems") == []


def _type_nod(page: PlaygroundPage) -> None:
    """Types the last word of the page's example again."""
    page.click("return Nod")
    for _ in "Nod":
        page.press("Backspace")
    page.type("Nod")


def test_ghost_text_follows_what_is_typed_and_deleted_and_tab_accepts_it(page: PlaygroundPage) -> None:
    _type_nod(page)
    page.wait_for_ghost("e")
    page.press("Backspace")
    page.wait_for(lambda: page.ghost not in (None, "e"), True)
    page.type("d")
    page.wait_for_ghost("e")
    page.press("Tab")
    page.wait_for_ghost(None)
    assert page.act("lines")[6] == "    return Node"


def test_a_word_can_be_accepted(page: PlaygroundPage) -> None:
    page.insert("class Node:\n    def __init__(self, value):\n        self.va")
    page.type("l")  # nothing is suggested after what looks like a paste
    page.wait_for(lambda: (page.ghost or "").startswith("ue = "), True)
    page.press("Control+ArrowRight")
    page.wait_for(lambda: (page.ghost or "").startswith(" = "), True)
    assert page.act("lines")[-1].lstrip().startswith("self.value")


def test_an_interrupt_ends_all_and_the_page_is_told(
    chromium: PlaygroundPage, real_server: RunningServer, tmp_path: Path
) -> None:
    with run_playground(f"--server={real_server.url}", f"--state-dir={tmp_path}") as playground:
        chromium.open(playground.url)
        chromium.wait_for(lambda: chromium.tone, "good")
        assert playground.interrupt() == 0
    assert find_processes(tmp_path) == {}
    chromium.wait_for(lambda: chromium.status.startswith("The playground has ended"), True)

"""What other users see while `midtoken playground --open` opens the page: not its address."""

import os
import stat
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from inference.errors import LaunchError
from midtoken.installed import find_playground_page
from tests.support.other_user import NOBODY
from tests.support.playground import RunningPlayground, run_playground
from tests.support.servers import wait_until


def _has_page() -> bool:
    try:
        return find_playground_page().is_dir()
    except LaunchError:
        return False


pytestmark = pytest.mark.skipif(not _has_page(), reason="`make playground-page` builds the page")


@pytest.fixture
def browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that has the arguments and the environment of the browser, once it was started."""
    told, program = tmp_path / "told", tmp_path / "browser"
    program.write_text(f'#!/bin/sh\n{{ printf "%s\\n" "$@"; env; }} > {told}.part; mv {told}.part {told}\n')
    program.chmod(0o755)
    monkeypatch.setenv("BROWSER", str(program))
    return told


@pytest.fixture
def playground(browser: Path) -> Iterator[RunningPlayground]:
    with run_playground("--open", "--server=127.0.0.1:9") as playground:
        wait_until(browser.exists)
        yield playground


def _find_page(browser: Path) -> Path:
    address = urlsplit(browser.read_text().splitlines()[0])
    assert (address.scheme, address.netloc) == ("file", "")
    return Path(unquote(address.path))


def test_the_token_is_in_a_file_that_only_its_user_can_read(playground: RunningPlayground, browser: Path) -> None:
    token = urlsplit(playground.url).path.strip("/")
    page = _find_page(browser)
    assert token not in browser.read_text()
    assert f'content="0; url={playground.url}"' in page.read_text()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (page, page.parent)] == [0o600, 0o700]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")
def test_another_user_cannot_open_the_file(playground: RunningPlayground, browser: Path) -> None:
    page = _find_page(browser)
    assert playground.url in page.read_text()
    os.seteuid(NOBODY)
    try:
        with pytest.raises(PermissionError):
            page.read_text()
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("ending", ["shown", "interrupted"])
def test_the_file_is_gone_when_the_page_is_shown_or_the_playground_has_ended(
    ending: str, playground: RunningPlayground, browser: Path
) -> None:
    page = _find_page(browser)
    assert page.exists()
    if ending == "shown":
        with urllib.request.urlopen(playground.url) as response:
            assert response.status == 200
    else:
        assert playground.interrupt() == 0
    wait_until(lambda: not page.parent.exists())

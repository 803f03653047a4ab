"""What other users see while `midtoken playground --open` opens the page: not its address."""

import stat
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from inference.errors import LaunchError
from midtoken.installed import find_playground_page
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


@pytest.mark.parametrize("ending", ["shown", "interrupted"])
def test_the_token_is_in_a_file_of_its_user_until_the_page_is_shown_or_the_playground_has_ended(
    ending: str, playground: RunningPlayground, browser: Path
) -> None:
    address = urlsplit(browser.read_text().splitlines()[0])
    assert (address.scheme, address.netloc) == ("file", "")
    page = Path(unquote(address.path))
    assert urlsplit(playground.url).path.strip("/") not in browser.read_text()
    assert f'content="0; url={playground.url}"' in page.read_text()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (page, page.parent)] == [0o600, 0o700]
    if ending == "shown":
        with urllib.request.urlopen(playground.url) as response:
            assert response.status == 200
    else:
        assert playground.interrupt() == 0
    wait_until(lambda: not page.parent.exists())

import json
import sys
from pathlib import Path

import pytest

from inference.platforms import find_install_command, find_memory


@pytest.mark.parametrize(
    ("name", "origin", "arguments"),
    [
        ("a b", {"dir_info": {}}, "'{folder}/a b[torch]'"),
        ("checkout", {"dir_info": {"editable": True}}, "--editable '{folder}/checkout[torch]'"),
        ("checkout", None, "'.[torch]' in a checkout of midtoken"),  # as in a container
        ("", {"url": "https://example.org/midtoken.whl", "archive_info": {}}, "'.[torch]' in a checkout of midtoken"),
        ("", {"url": "file:///no/longer/there", "dir_info": {}}, "'.[torch]' in a checkout of midtoken"),
    ],
)
def test_more_packages_come_from_where_midtoken_was_installed_from_and_not_from_an_index(
    name: str, origin: dict[str, object] | None, arguments: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).mkdir(exist_ok=True)
    installed = tmp_path / "site-packages/midtoken-1.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Name: midtoken")
    if origin is not None:
        (installed / "direct_url.json").write_text(json.dumps({"url": (tmp_path / name).as_uri(), **origin}))
    monkeypatch.setattr(sys, "path", [str(installed.parent)])
    assert find_install_command("torch") == f"{sys.executable} -m pip install {arguments.format(folder=tmp_path)}"


@pytest.mark.parametrize(
    ("name", "limit", "expected"),
    [
        ("memory.max", "7000", 7000),
        ("memory/memory.limit_in_bytes", "6000", 6000),
        ("memory.max", "max", None),
        ("none", "1", None),
    ],
)
def test_the_limit_of_a_container_is_seen(name: str, limit: str, expected: int | None, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(f"{limit}\n")
    found = find_memory(tmp_path)
    assert found == expected if expected else 7000 < found < 2**62

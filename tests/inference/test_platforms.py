"""Modules of the client and of the embedded server load where there is no POSIX, as on Windows. Nobody has run them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from inference.platforms import find_install_command
from inference.serving.triton_installation import IMPORT_ROOT

# What other packages take from the system is loaded before it is hidden.
_SCRIPT = """
import asyncio, importlib, logging, os, pkgutil, shutil, signal, socket, subprocess, sys, tempfile, types
import aiohttp, grpc, platformdirs, pygls.lsp.server, rich.console, tritonclient.grpc
import huggingface_hub.hf_api, webbrowser
import sysconfig; sysconfig.get_config_vars()  # of this system
for name in ("fcntl", "pwd", "grp", "resource", "termios", "tty"):
    sys.modules[name] = None
sys.modules["portalocker"] = types.ModuleType("portalocker")
sys.platform = "win32"
for module, names in ((os, "getuid geteuid O_PATH killpg pidfd_open fork"), (socket, "AF_NETLINK AF_UNIX")):
    for name in names.split():
        delattr(module, name)
for name in ("SIGKILL", "SIGHUP"):
    delattr(signal, name)
for package in ("inference.protocol", "inference.serving", "lsp_server", "midtoken"):
    found = importlib.import_module(package)
    for module in pkgutil.walk_packages(found.__path__, package + "."):
        if module.name != "midtoken.__main__":
            importlib.import_module(module.name)
print("loaded")
"""


def test_every_module_loads_where_there_is_no_posix() -> None:
    done = subprocess.run([sys.executable, "-c", _SCRIPT], cwd=IMPORT_ROOT, capture_output=True, text=True)
    assert done.stdout == "loaded\n", done.stderr


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

"""Modules of the client and of the embedded server load where there is no POSIX, as on Windows. Nobody has run them."""

import subprocess
import sys

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

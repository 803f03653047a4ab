"""What midtoken and its libraries write and ask of the network in a whole run; SECURITY.md says what that may be."""

import sys

import pytest

from tests.support.watched_run import HOME, can_watch, watch
from tests.support.whole_run import watch_whole_run

pytestmark = pytest.mark.e2e

_OWN = (
    *(f"{HOME}/{folder}/midtoken/" for folder in (".cache", ".local/share", ".local/state")),
    f"{HOME}/.cache/huggingface/hub/",
    "/tmp/midtoken-",
)
_TELEMETRY = """
import os, socket, subprocess
from pathlib import Path
subprocess.run(["getent", "hosts", "native.invalid"])
for family, address in ((socket.AF_INET, "203.0.113.5"), (socket.AF_INET6, "2001:db8::5")):
    with socket.socket(family) as client:
        client.connect_ex((address, 443))
with socket.socket(type=socket.SOCK_DGRAM) as client:
    client.sendto(b"", ("203.0.113.7", 9))
at_end = 'trap "getent hosts at-end.invalid; exit" TERM; echo; sleep 60 & wait'
subprocess.Popen(["sh", "-c", at_end], stdout=subprocess.PIPE).stdout.readline()
Path.home().joinpath("deviceid").touch()
"""


@pytest.fixture(autouse=True)
def _needs_namespaces() -> None:
    if not can_watch():
        pytest.skip("only root may lay a file system over the real one, and iproute2 has to be there")


def test_all_that_a_library_could_send_or_keep_is_seen() -> None:
    seen = watch([sys.executable, "-c", _TELEMETRY])
    assert {"native.invalid", "203.0.113.5", "2001:db8::5", "203.0.113.7", "at-end.invalid"} <= set(seen.hosts)
    assert seen.files == [f"{HOME}/deviceid"]


@pytest.mark.timeout(600)
def test_a_whole_run_asks_no_other_machine_and_keeps_files_in_its_own_folders_only() -> None:
    seen = watch_whole_run()
    assert seen.status == 0, seen.output
    assert (seen.hosts, [file for file in seen.files if not file.startswith(_OWN)]) == ([], [])

"""The real HAProxy with the configurations in deploy/, on free ports, with a certificate and keys."""

import contextlib
import os
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

from inference.platforms import ADDRESS, IMPORT_ROOT
from tests.support.servers import pick_free_ports, wait_until

DEPLOY = IMPORT_ROOT / "deploy"
HAPROXY = IMPORT_ROOT / "build/haproxy"
KEYS = ("Bearer hunter2", "Bearer other", "Bearer large", "Bearer chunks")
needs_haproxy = pytest.mark.skipif(not HAPROXY.exists(), reason="there is no HAProxy here: make tools")


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files in PEM."""

    authority: Path
    gateway: Path  # with its private key, for loopback

    @classmethod
    def create(cls, folder: Path) -> "Certificates":
        """Makes new ones in a folder."""
        authority, files = trustme.CA(), cls(folder / "ca.pem", folder / "gateway.pem")
        authority.cert_pem.write_to_path(files.authority)
        authority.issue_cert(ADDRESS, "localhost").private_key_and_cert_chain_pem.write_to_path(files.gateway)
        return files


@dataclass(slots=True)
class HaProxy:
    """A running one, which can be killed and started again."""

    files: Sequence[Path]  # with its configuration
    settings: Mapping[str, str]
    log_path: Path
    operator_port: int
    process: "subprocess.Popen[str] | None" = None

    @property
    def log(self) -> str:
        """What it has written so far."""
        return self.log_path.read_text()

    def start(self) -> None:
        """Returns when it answers its operator."""
        command = [str(HAPROXY), *(part for file in self.files for part in ("-f", str(file)))]
        with self.log_path.open("a") as log:
            process = subprocess.Popen(command, env={**os.environ, **self.settings}, stdout=log, stderr=log, text=True)
        self.process = process
        wait_until(lambda: self._answers() or process.poll() is not None)
        assert process.poll() is None, self.log

    @property
    def pid(self) -> int:
        """Of the process that runs."""
        assert self.process is not None
        return self.process.pid

    def kill(self) -> None:
        """Ends it at once."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(10)

    def read(self, path: str) -> str:
        """What it answers its operator. Raises urllib.error.HTTPError for another status than 200."""
        with urllib.request.urlopen(f"http://{ADDRESS}:{self.operator_port}{path}", timeout=5) as answer:
            return str(answer.read().decode())

    def count_used(self, backend: str) -> int:
        """How many servers of a backend are in use."""
        start = f'haproxy_server_status{{proxy="{backend}"'
        lines = [line for line in self.read("/metrics").splitlines() if line.startswith(start)]
        return sum('state="UP"' in line and line.endswith(" 1") for line in lines)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError):
            return bool(self.read("/metrics"))
        return False


@dataclass(frozen=True, slots=True)
class Gateway:
    """HAProxy with deploy/haproxy.cfg."""

    haproxy: HaProxy
    grpc_port: int
    http_port: int


@contextlib.contextmanager
def run_gateway(
    folder: Path, servers: str, certificates: Certificates, settings: Mapping[str, str] = {}
) -> Iterator[Gateway]:
    """Runs deploy/haproxy.cfg inside the block, with a second file that has this text, for `KEYS`."""
    (folder / "servers.cfg").write_text(servers)
    (folder / "keys").write_text("\n".join(KEYS))
    grpc_port, http_port, operator_port = pick_free_ports(3)
    places = {
        "MIDTOKEN_GATEWAY_GRPC": f"{ADDRESS}:{grpc_port}",
        "MIDTOKEN_GATEWAY_HTTP": f"{ADDRESS}:{http_port}",
        "MIDTOKEN_GATEWAY_OPERATOR": f"{ADDRESS}:{operator_port}",
        "MIDTOKEN_GATEWAY_TLS": str(certificates.gateway),
        "MIDTOKEN_GATEWAY_KEYS": str(folder / "keys"),
    }
    files = [DEPLOY / "haproxy.cfg", folder / "servers.cfg"]
    haproxy = HaProxy(files, {**places, **settings}, folder / "haproxy.log", operator_port)
    with contextlib.ExitStack() as stack:
        stack.callback(haproxy.kill)
        haproxy.start()
        yield Gateway(haproxy, grpc_port, http_port)


def check_configuration(files: Sequence[Path], settings: Mapping[str, str]) -> str:
    """What HAProxy says of the files; empty if it finds them right."""
    command = [str(HAPROXY), "-c", "-q", *(part for file in files for part in ("-f", str(file)))]
    checked = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True, timeout=60)
    return "" if checked.returncode == 0 else checked.stderr

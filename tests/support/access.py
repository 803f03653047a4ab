"""Users with keys, and certificates of an authority that only the tests trust."""

from pathlib import Path

import trustme

ANN, BOB = 20 * "a", 20 * "b"  # their keys


def bearer(key: str) -> dict[str, str]:
    """The header with a key."""
    return {"Authorization": f"Bearer {key}"}


def write_keys(folder: Path, text: str = f"ann {ANN}\nbob {BOB}\n", mode: int = 0o600) -> Path:
    """Writes a file of `--keys`."""
    path = folder / "keys"
    path.write_text(text)
    path.chmod(mode)
    return path


def write_certificate(folder: Path, authority: trustme.CA, name: str = "127.0.0.1") -> Path:
    """Writes a file of `--tls`."""
    path = folder / "server.pem"
    authority.issue_cert(name).private_key_and_cert_chain_pem.write_to_path(str(path))
    return path

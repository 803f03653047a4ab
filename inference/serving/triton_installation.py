"""Finds tritonserver on this machine: its binary, its backends and its shared libraries."""

import hashlib
import importlib.util
import os
import shutil
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from inference.errors import LaunchError


@dataclass(frozen=True, slots=True)
class TritonInstallation:
    """The server's binary, and the folders for its command line and environment."""

    binary: Path
    backends_dir: Path
    cache_dir: Path | None = None  # None: the server's own default
    shared_library_dirs: tuple[Path, ...] = ()


def find_installation(binary: Path) -> TritonInstallation:
    """Returns the installation that contains `binary`, laid out as in NVIDIA's container. Raises LaunchError."""
    if not os.access(binary, os.X_OK) or binary.is_dir():
        raise LaunchError(f"{binary} is not an executable file")
    backends_dir = binary.resolve().parents[1] / "backends"
    if not (backends_dir / "python").is_dir():
        raise LaunchError(f"{binary} has no Python backend: {backends_dir / 'python'} is missing")
    return TritonInstallation(binary, backends_dir)


def link_bundled_installation(links_dir: Path) -> TritonInstallation:
    """Returns the server in the nvidia-pytriton wheel, with a Python backend for this interpreter.

    The backend runs each model in a stub process. The stub is built for one Python version and must be in the
    backend's folder. So a folder below `links_dir` gets a link to each file of the backend, and a copy of the stub: the
    backend changes the stub's mode, which only its owner can do. Raises LaunchError, which says what to install.
    """
    bundle = _find_bundle()
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = bundle / "python_backend_stubs" / version / "triton_python_backend_stub"
    if not stub.exists():
        raise LaunchError(f"the bundled tritonserver has no stub for Python {version}; use Python 3.11")
    digest = hashlib.sha256(f"{bundle} {version}".encode()).hexdigest()[:12]
    backend_dir = links_dir / digest / "python"
    backend_dir.mkdir(parents=True, exist_ok=True)
    for file in (bundle / "backends" / "python").iterdir():
        link(backend_dir / file.name, file)
    _copy(backend_dir / stub.name, stub)
    return TritonInstallation(
        binary=bundle / "bin" / "tritonserver",
        backends_dir=backend_dir.parent,
        cache_dir=bundle / "caches",
        shared_library_dirs=(bundle.parents[1] / "nvidia_pytriton.libs", _find_libpython(version).parent),
    )


def link(place: Path, target: Path) -> None:
    """Makes `place` a symbolic link to the target. Raises OSError."""
    if not (place.is_symlink() and place.readlink() == target):
        fresh = place.with_name(f"{place.name}.{os.getpid()}")
        fresh.symlink_to(target)
        fresh.replace(place)  # in one step, because another process may be starting from this folder


def _copy(place: Path, source: Path) -> None:
    """Makes `place` a copy of the source. Once the backend has seen a copy, it can be run, but not read."""
    if place.is_symlink() or not place.exists() or _stamp(place) != _stamp(source):
        fresh = place.with_name(f"{place.name}.{os.getpid()}")
        try:
            shutil.copyfile(source, fresh)
            shutil.copystat(source, fresh)
            fresh.chmod(0o700)
            fresh.replace(place)
        except PermissionError:
            raise LaunchError(f"{source} cannot be read; its owner can change that: chmod a+rx {source}") from None
        finally:
            fresh.unlink(missing_ok=True)  # of a copy that failed, as on a full disk


def _stamp(path: Path) -> tuple[int, int]:
    """What is the same for a file and its copy, and changes with the file's content."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _find_bundle() -> Path:
    spec = importlib.util.find_spec("pytriton")
    if spec is None or spec.origin is None:
        raise LaunchError(
            "tritonserver is not installed: run `pip install nvidia-pytriton==0.7.0` or name one with --triton-binary"
        )
    return Path(spec.origin).parent / "tritonserver"


def _find_libpython(version: str) -> Path:
    name = f"libpython{version}.so.1.0"
    folders = [
        sysconfig.get_config_var("LIBDIR") or "",
        f"/usr/lib/{sysconfig.get_config_var('MULTIARCH')}",
        f"{sys.base_prefix}/lib",
    ]
    for folder in folders:
        if Path(folder, name).exists():
            return Path(folder, name)
    raise LaunchError(
        f"Triton's Python backend needs {name}, which is missing; on Debian: apt install libpython{version}"
    )

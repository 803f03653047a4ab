"""tritonserver as the host of the model repository: how it is run, and what a model's process has of it.

It takes the place of `midtoken serve`. What starts that one starts it again: systemd, Docker or a person.
"""

import hashlib
import importlib.util
import logging
import os
import re
import select
import shutil
import sys
import sysconfig
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn  # Triton's objects have no types

from inference.config import VARIABLE, EngineConfig
from inference.errors import InvalidRequestError, LaunchError, MidtokenError, describe_failure
from inference.platforms import ADDRESS, IMPORT_ROOT, find_install_command
from inference.private_files import make_private_folder
from inference.protocol.arrays import Array, FieldTypes

_log = logging.getLogger(__name__)

# Completions do not need these APIs. They are closed to everybody, including web pages that post to loopback. Triton
# allows them for requests with a configured header, but every user of the machine can read Triton's arguments. So the
# header's name contains a line break, which neither HTTP nor gRPC can transmit.
_CLOSED_APIS = "shared-memory,model-repository,model-config,trace,logging,statistics"
_IMPOSSIBLE_HEADER = "none\n=none\n"
_DRAIN_S = 4  # for running streams. Those that have not ended by then get an error
_OTHERS_ACCESS = 0o077

_REGION = re.compile(r"/dev/shm/triton_python_backend_shm_region_[\w-]+")
_SHELL_WORD = re.compile(r"[\w/.,:@%+=-]+")


@dataclass(frozen=True, slots=True)
class TritonInstallation:
    """The server's binary, and the folders for its command line and environment."""

    binary: Path
    backends_dir: Path
    stub: Path | None = None  # of the Python backend, for this interpreter; None: it is in the backend's folder
    cache_dir: Path | None = None  # None: the server's own default
    shared_library_dirs: tuple[Path, ...] = ()


def find_installation(binary: Path | None) -> TritonInstallation:
    """Returns the installation of `binary`, laid out as in NVIDIA's container; None: that in the nvidia-pytriton wheel.

    Raises LaunchError, which says what to install.
    """
    if binary is None:
        return _find_bundle()
    if not os.access(binary, os.X_OK) or binary.is_dir():
        raise LaunchError(f"{binary} is not an executable file")
    backends_dir = binary.resolve().parents[1] / "backends"
    if not (backends_dir / "python").is_dir():
        raise LaunchError(f"{binary} has no Python backend: {backends_dir / 'python'} is missing")
    return TritonInstallation(binary, backends_dir)


def link_backend(installation: TritonInstallation, links_dir: Path) -> Path:
    """Returns a folder of backends in which the Python backend has its stub. Raises LaunchError.

    The backend runs each model in a stub process. The stub is built for one Python version and must be in the
    backend's folder. So a folder below `links_dir` gets a link to each file of the backend, and a copy of the stub: the
    backend changes the stub's mode, which only its owner can do.
    """
    stub = installation.stub
    if stub is None:
        return installation.backends_dir
    digest = hashlib.sha256(f"{installation.backends_dir} {stub.parent.name}".encode()).hexdigest()[:12]
    backend_dir = links_dir / digest / "python"
    backend_dir.mkdir(parents=True, exist_ok=True)
    for file in (installation.backends_dir / "python").iterdir():
        _link(backend_dir / file.name, file)
    _copy(backend_dir / stub.name, stub)
    return backend_dir.parent


def become_triton(
    config: EngineConfig,
    repository: Path,
    folder: Path,
    binary: Path | None,
    ports: tuple[int, int | None],
) -> NoReturn:
    """Replaces this process by tritonserver with the model repository. Its output is this process's.

    `folder`: a private one, for links. `binary`: see `find_installation`. `ports`: see `build_command`. Raises
    LaunchError.
    """
    make_private_folder(folder)
    try:
        installation = find_installation(binary)
        backends_dir = to_shell_path(link_backend(installation, folder / "backends"), folder, "backends.link")
        repository = to_shell_path(repository, folder, "repository.link")
        os.chdir(folder)  # a model's process imports from its working folder, and this one has nothing to import
        os.umask(_OTHERS_ACCESS)
        os.execve(
            installation.binary,
            build_command(replace(installation, backends_dir=backends_dir), repository, ports),
            build_environment(installation, config, os.environ),
        )
    except OSError as error:
        raise LaunchError(f"cannot start tritonserver with its files in {folder}: {error.strerror}") from None


def build_command(installation: TritonInstallation, repository: Path, ports: tuple[int, int | None]) -> list[str]:
    """Returns the command line. On SIGTERM, the server waits a few seconds for its streams.

    `ports`: of gRPC, and of its own HTTP, which knows no stranger's web page from a program of the user; None: closed.
    """
    grpc_port, http_port = ports
    return [
        str(installation.binary),
        f"--model-repository={repository}",
        f"--backend-directory={installation.backends_dir}",
        *([f"--cache-directory={installation.cache_dir}"] if installation.cache_dir else []),
        f"--grpc-address={ADDRESS}",
        f"--grpc-port={grpc_port}",
        *(["--allow-http=false"] if http_port is None else [f"--http-address={ADDRESS}", f"--http-port={http_port}"]),
        "--allow-metrics=false",  # the model reports its own, over gRPC
        f"--http-restricted-api={_CLOSED_APIS}:{_IMPOSSIBLE_HEADER}",
        f"--grpc-restricted-protocol={_CLOSED_APIS}:{_IMPOSSIBLE_HEADER}",
        "--model-control-mode=none",
        "--disable-auto-complete-config",
        "--allow-sagemaker=false",
        "--allow-vertex-ai=false",
        "--pinned-memory-pool-byte-size=0",
        f"--exit-timeout-secs={_DRAIN_S}",
    ]


def build_environment(
    installation: TritonInstallation, config: EngineConfig, environment: Mapping[str, str]
) -> dict[str, str]:
    """Returns the given environment plus the configuration and the search paths of the server and its models."""

    def prepend(name: str, *folders: Path) -> dict[str, str]:
        return {name: os.pathsep.join([*map(str, folders), *filter(None, [environment.get(name)])])}

    interpreter_dir = Path(sys.executable).parent  # through this a model's process finds the virtual environment
    is_checkout = IMPORT_ROOT not in {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")}
    return {
        **environment,
        VARIABLE: config.to_json(),
        **prepend("PATH", interpreter_dir),
        **prepend("LD_LIBRARY_PATH", *installation.shared_library_dirs),
        **(prepend("PYTHONPATH", IMPORT_ROOT) if is_checkout else {}),
    }


def to_shell_path(path: Path, folder: Path, name: str) -> Path:
    """The path itself where a shell takes it for one word; else `name`, which is made a link to it in `folder`.

    Triton starts the models' stubs with a shell, in its working folder, which `folder` must be, and puts no quotes
    around the paths. Raises OSError where the link cannot be made.
    """
    if _SHELL_WORD.fullmatch(str(path)):
        return path
    _link(folder / name, path)
    return Path(name)


def _link(place: Path, target: Path) -> None:
    """Makes `place` a symbolic link to the target. Raises OSError."""
    fresh = place.with_name(f"{place.name}.{os.getpid()}")
    fresh.symlink_to(target)
    fresh.replace(place)  # in one step, because another process may be starting from this folder


def _copy(place: Path, source: Path) -> None:
    """Makes `place` a copy of the source that only this user can run. A process that runs an older copy keeps it."""
    fresh = place.with_name(f"{place.name}.{os.getpid()}")
    try:
        shutil.copyfile(source, fresh)
        fresh.chmod(0o700)
        fresh.replace(place)
    except PermissionError:
        raise LaunchError(f"{source} cannot be read; its owner can change that: chmod a+rx {source}") from None
    finally:
        fresh.unlink(missing_ok=True)  # of a copy that failed, as on a full disk


def _find_bundle() -> TritonInstallation:
    spec = importlib.util.find_spec("pytriton")
    if spec is None or spec.origin is None:
        raise LaunchError(
            "tritonserver is not installed; for Python 3.11 on Linux (x86-64), run "
            f"{find_install_command('triton')}, otherwise name one with --triton-binary"
        )
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    folder = Path(spec.origin).parent / "tritonserver"
    stub = folder / "python_backend_stubs" / python / "triton_python_backend_stub"
    if not stub.exists():
        raise LaunchError(f"the bundled tritonserver has no stub for Python {python}")
    if int((numpy := version("numpy")).partition(".")[0]) >= 2:
        raise LaunchError(f"the bundled tritonserver needs NumPy below 2, and NumPy {numpy} is installed")
    libraries = (folder.parents[1] / "nvidia_pytriton.libs", _find_libpython(python).parent)
    return TritonInstallation(
        folder / "bin" / "tritonserver", folder / "backends", stub, folder / "caches", shared_library_dirs=libraries
    )


def _find_libpython(python: str) -> Path:
    name = f"libpython{python}.so.1.0"
    folders = [
        sysconfig.get_config_var("LIBDIR") or "",
        f"/usr/lib/{sysconfig.get_config_var('MULTIARCH')}",
        f"{sys.base_prefix}/lib",
    ]
    for folder in folders:
        if Path(folder, name).exists():
            return Path(folder, name)
    raise LaunchError(
        f"Triton's Python backend needs {name}, which is missing; on Debian: apt install libpython{python}"
    )


class TritonReply:
    """Sends the answer through Triton, whose objects have no types."""

    def __init__(self, triton: Any, sender: Any) -> None:
        self._triton, self._sender = triton, sender

    def is_closed(self) -> bool:
        try:
            return bool(self._sender.is_cancelled())
        except Exception as error:  # for example if the shared memory is full
            _log.error("cannot tell whether a client has gone: %s", describe_failure(error))
            return False

    def send(self, arrays: Mapping[str, Array], is_last: bool) -> None:
        flags = self._triton.TRITONSERVER_RESPONSE_COMPLETE_FINAL if is_last else 0
        if arrays:
            tensors = [self._triton.Tensor(*each) for each in arrays.items()]
            self._sender.send(self._triton.InferenceResponse(tensors), flags=flags)
        else:
            self._sender.send(flags=flags)

    def fail(self, error: MidtokenError) -> None:
        triton_error = self._triton.TritonError(error.stream_text, getattr(self._triton.TritonError, error.code))
        response = self._triton.InferenceResponse(error=triton_error)
        self._sender.send(response, flags=self._triton.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


def end_with_parent() -> None:
    """Ends this process and frees its shared memory when tritonserver, its parent, was killed.

    Triton's own code in this process looks for that each 300 ms, and may then hang for ever with Python's lock. So this
    must be faster.
    """
    if sys.platform != "linux":
        raise NotImplementedError("Triton runs on Linux only")
    regions = set(_REGION.findall(Path("/proc/self/maps").read_text()))
    select.select([os.pidfd_open(os.getppid())], [], [])
    for region in regions:
        Path(region).unlink(missing_ok=True)
    os._exit(1)


def read_inputs(request: Any, get_tensor: Callable[[Any, str], Any], types: FieldTypes) -> dict[str, Array]:
    """The arrays of a request that Triton passes to a model. `types`: the inputs that the model has.

    `get_tensor` is Triton's `get_input_tensor_by_name`. Raises InvalidRequestError if the request has parameters.
    """
    if request.parameters() not in ("", "{}"):
        raise InvalidRequestError("a request has no parameters, only inputs")
    tensors = {name: get_tensor(request, name) for name in types}
    return {name: tensor.as_numpy() for name, tensor in tensors.items() if tensor is not None}

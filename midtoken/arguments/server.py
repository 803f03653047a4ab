"""The arguments that say which model is served, how, and where its files go. Every subcommand has them."""

import argparse
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import platformdirs

from inference.config import EngineConfig, strings_from_environment
from inference.errors import LaunchError
from inference.serving.launcher import ServerOptions
from inference.serving.shared_server import ServerEntry
from midtoken.extras import require_server_packages
from midtoken.resources import find_default_model, find_model_repository

_DEFAULTS = EngineConfig(Path())


@dataclass(frozen=True, slots=True)
class ServerArguments:
    """The model to serve, the tritonserver that serves it, and where the server's files go."""

    model: EngineConfig
    triton_binary: Path | None
    model_repository: Path
    state_dir: Path | None  # None: the user's own folders

    @classmethod
    def from_options(cls, options: argparse.Namespace) -> Self:
        """Builds it from the parsed arguments of `add_server_arguments`. Raises MissingPackagesError or LaunchError."""
        require_server_packages(options)
        model_dir = (options.model or find_default_model()).resolve()
        if not (model_dir / "config.json").is_file():
            raise LaunchError(f"{model_dir} is not a model folder: it has no config.json")
        if options.threads < 1:
            raise LaunchError(f"--threads must be 1 or more, not {options.threads}")
        model = EngineConfig(
            model_dir,
            device=options.device,
            dtype=options.dtype,
            num_threads=options.threads,
            graph_dir=_find_cache_dir(),
            fill_in_layout=strings_from_environment(os.environ).get("fill_in_layout") or _DEFAULTS.fill_in_layout,
        )
        repository = (options.model_repository or find_model_repository()).resolve()
        binary = options.triton_binary and options.triton_binary.resolve()
        return cls(model, binary, repository, options.state_dir and options.state_dir.resolve())

    @property
    def entry(self) -> ServerEntry:
        """The entry through which other processes of this user find the server. Raises LaunchError."""
        return ServerEntry.create(self.state_dir or _find_runtime_dir(), self.model)

    @property
    def server_options(self) -> ServerOptions:
        """The options for the launcher, with any free ports. Raises LaunchError."""
        state_dir = (self.state_dir or _find_state_dir()) / self.entry.folder.name
        return ServerOptions(self.model, self.model_repository, state_dir, self.triton_binary)

    def build_shared_command(self, idle_s: float) -> list[str]:
        """Returns the command for `inference.serving.shared_server.lease_server`: `midtoken serve` on free ports."""
        optional = {"--triton-binary": self.triton_binary, "--state-dir": self.state_dir}
        return [
            *(sys.executable, "-m", "midtoken", "serve", "--free-ports", f"--until-idle={idle_s}"),
            *(f"--model={self.model.model_dir}", f"--model-repository={self.model_repository}"),
            *(f"--device={self.model.device}", f"--dtype={self.model.dtype}", f"--threads={self.model.num_threads}"),
            *(f"{name}={path}" for name, path in optional.items() if path),
        ]


def _find_runtime_dir() -> Path:
    """Returns the user's runtime folder; without a login session, the state folder, because /tmp is open to others.

    XDG_RUNTIME_DIR may name the folder of another user, as after `su`. Raises LaunchError.
    """
    folder = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    try:
        is_ours = folder.is_absolute() and folder.stat().st_uid == os.getuid()
    except OSError:
        is_ours = False
    return folder / "midtoken" if is_ours else _find_state_dir()


def _find_state_dir() -> Path:
    """Returns the user's folder for logs. Raises LaunchError if the user has no home folder, as in some containers."""
    try:
        return platformdirs.user_state_path("midtoken")
    except RuntimeError:
        raise LaunchError("this user has no home folder: set HOME, or name a folder with --state-dir") from None


def _find_cache_dir() -> Path | None:
    """Returns the user's folder for converted models; None if the user has no home folder."""
    try:
        return platformdirs.user_cache_path("midtoken") / "graphs"
    except RuntimeError:
        return None

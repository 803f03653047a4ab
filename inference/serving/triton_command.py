"""The command line and the environment of tritonserver."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from inference.config import EngineConfig, config_to_environment
from inference.serving.endpoint import ADDRESS, Endpoint
from inference.serving.import_root import IMPORT_ROOT, is_checkout
from inference.serving.triton_installation import TritonInstallation

# Completions do not need these APIs. They are closed to everybody, including web pages that post to loopback. Triton
# allows them for requests with a configured header, but every user of the machine can read Triton's arguments. So the
# header's name contains a line break, which neither HTTP nor gRPC can transmit.
_CLOSED_APIS = "shared-memory,model-repository,model-config,trace,logging,statistics"
_IMPOSSIBLE_HEADER = "none\n=none\n"


def build_command(
    installation: TritonInstallation, model_repository: Path, endpoint: Endpoint, drain_s: int
) -> list[str]:
    """Returns the command line. On SIGTERM, the server waits up to `drain_s` for its streams."""
    cache = [f"--cache-directory={installation.cache_dir}"] if installation.cache_dir else []
    return [
        str(installation.binary),
        f"--model-repository={model_repository}",
        f"--backend-directory={installation.backends_dir}",
        *cache,
        *(f"--{service}-address={ADDRESS}" for service in ("http", "grpc", "metrics")),
        f"--http-port={endpoint.http_port}",
        f"--grpc-port={endpoint.grpc_port}",
        f"--metrics-port={endpoint.metrics_port}",
        *(f"--reuse-{service}-port=true" for service in ("http", "grpc")),  # shared with endpoint.reserve_endpoint
        f"--http-restricted-api={_CLOSED_APIS}:{_IMPOSSIBLE_HEADER}",
        f"--grpc-restricted-protocol={_CLOSED_APIS}:{_IMPOSSIBLE_HEADER}",
        "--model-control-mode=none",
        "--disable-auto-complete-config",
        "--allow-sagemaker=false",
        "--allow-vertex-ai=false",
        "--allow-gpu-metrics=false",
        "--pinned-memory-pool-byte-size=0",
        f"--exit-timeout-secs={drain_s}",
    ]


def build_environment(
    installation: TritonInstallation, model: EngineConfig, environment: Mapping[str, str]
) -> dict[str, str]:
    """Returns the given environment plus the model's settings and the search paths of the server and its stubs."""

    def prepend(name: str, *folders: Path) -> dict[str, str]:
        return {name: os.pathsep.join([*map(str, folders), *filter(None, [environment.get(name)])])}

    interpreter_dir = Path(sys.executable).parent  # through this the stub finds the virtual environment
    return {
        **environment,
        **config_to_environment(model),
        **prepend("PATH", interpreter_dir),
        **prepend("LD_LIBRARY_PATH", *installation.shared_library_dirs),
        **(prepend("PYTHONPATH", IMPORT_ROOT) if is_checkout() else {}),
    }

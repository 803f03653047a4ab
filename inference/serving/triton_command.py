"""The command line and the environment with which tritonserver is started."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from inference.config import EngineConfig, config_to_environment
from inference.serving.endpoint import ADDRESS, Endpoint
from inference.serving.import_root import IMPORT_ROOT, is_checkout
from inference.serving.triton_installation import TritonInstallation

# APIs that no completion needs. They are closed to everybody, web pages that post to loopback included. Triton opens
# them to requests with a certain header, and its arguments can be read by every user of the machine. So the header's
# name holds a line break: neither HTTP nor gRPC can carry such a header.
_CLOSED_APIS = "shared-memory,model-repository,model-config,trace,logging,statistics"
_IMPOSSIBLE_HEADER = "none\n=none\n"


def build_command(
    installation: TritonInstallation, model_repository: Path, endpoint: Endpoint, drain_s: int
) -> list[str]:
    """The arguments, the program first. When told to end, the server waits `drain_s` for its streams."""
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
    """The given environment, with the model's settings and the search paths that the server and its stubs need."""

    def prepend(name: str, *folders: Path) -> dict[str, str]:
        return {name: os.pathsep.join([*map(str, folders), *filter(None, [environment.get(name)])])}

    interpreter_dir = Path(sys.executable).parent  # from here the stub finds the virtual environment
    return {
        **environment,
        **config_to_environment(model),
        **prepend("PATH", interpreter_dir),
        **prepend("LD_LIBRARY_PATH", *installation.shared_library_dirs),
        **(prepend("PYTHONPATH", IMPORT_ROOT) if is_checkout() else {}),
    }

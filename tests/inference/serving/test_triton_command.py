from pathlib import Path

from inference.config import EngineConfig
from inference.serving.endpoint import Endpoint
from inference.serving.triton_command import build_command, build_environment
from inference.serving.triton_installation import TritonInstallation

_INSTALLATION = TritonInstallation(Path("/bin/tritonserver"), Path("/backends"), shared_library_dirs=(Path("/libs"),))


def test_every_service_listens_on_loopback() -> None:
    command = build_command(_INSTALLATION, Path("/repository"), Endpoint(1, 2, 3), drain_s=10)
    services = {f"--{service}-address=127.0.0.1" for service in ("http", "grpc", "metrics")}
    assert services | {"--http-port=1", "--grpc-port=2", "--metrics-port=3"} <= set(command)


def test_the_header_that_opens_closed_apis_cannot_be_sent() -> None:
    command = build_command(_INSTALLATION, Path("/repository"), Endpoint(1, 2, 3), drain_s=10)
    closed = [argument for argument in command if "restricted" in argument]
    names = [argument.rpartition(":")[2].partition("=")[0] for argument in closed]
    assert len(names) == 2
    assert all("\n" in name for name in names)


def test_environment_contains_the_models_settings_and_search_paths() -> None:
    environment = build_environment(_INSTALLATION, EngineConfig(Path("/model")), {"LD_LIBRARY_PATH": "/own", "A": "b"})
    assert environment["MIDTOKEN_MODEL_DIR"] == "/model"
    assert environment["LD_LIBRARY_PATH"] == "/libs:/own"
    assert environment["A"] == "b"

"""Ends well if the server in this container is ready and its models make progress.

Triton says that it is ready even if the process of a model has ended. So each model is asked how long it has made no
progress; it answers at once, even while completions wait. Needs the standard library only.

    python3 health_check.py [ADDRESS]
"""

import json
import sys
import urllib.request

_ADDRESS = "http://127.0.0.1:8000"
_TIMEOUT_S = 5
_MAX_STALL_MS = 60_000
_REQUESTS = {
    "completion": {"prefix": "", "heartbeat": True},
    "characters": {"text": "", "heartbeat": True},
}


def main() -> None:
    address = sys.argv[1] if len(sys.argv) > 1 else _ADDRESS
    _read(f"{address}/v2/health/ready")
    for model, request in _REQUESTS.items():
        answer = _read(f"{address}/v2/models/{model}/generate_stream", json.dumps(request).encode())
        stall_ms = _find_stall_ms(answer)
        if stall_ms > _MAX_STALL_MS:
            sys.exit(f"{model} has made no progress for {stall_ms / 1000:.0f} s")


def _read(url: str, body: bytes | None = None) -> str:
    """The body of the answer. Raises OSError if there is none, or its status says that something is wrong."""
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
        return str(response.read().decode())


def _find_stall_ms(answer: str) -> float:
    """Reads the only event of a stream. Raises ValueError or KeyError if it is an error."""
    [event] = [line.removeprefix("data:") for line in answer.splitlines() if line.startswith("data:")]
    return float(json.loads(event)["heartbeat_ms"])


if __name__ == "__main__":
    main()

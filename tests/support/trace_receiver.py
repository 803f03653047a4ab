"""A receiver of OpenTelemetry's traces over HTTP, on loopback."""

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class TraceReceiver:
    """The spans that were received so far."""

    def __init__(self, url: str) -> None:
        self.url, self.spans, self.bodies = url, list[Span](), list[bytes]()

    def add(self, body: bytes) -> None:
        """Adds the spans of one request."""
        self.bodies.append(body)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.spans += [span for scope in resource.scope_spans for span in scope.spans]


@contextlib.contextmanager
def run_trace_receiver() -> Iterator[TraceReceiver]:
    """Runs one inside the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            receiver.add(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver = TraceReceiver(f"http://127.0.0.1:{server.server_port}")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield receiver
        finally:
            server.shutdown()


def read_attributes(span: Span) -> dict[str, object]:
    """The attributes of a span."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}

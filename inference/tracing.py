"""Traces with OpenTelemetry, in the words of its conventions for generative AI. They have no text.

They are made only where OTEL_EXPORTER_OTLP_ENDPOINT names a receiver; OpenTelemetry's other variables apply, too. A
client's span has the engine's below it, because the request has its `traceparent`.
"""

import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from inference.errors import MidtokenError
from inference.protocol.completion import CompletionChunk, CompletionRequest, CompletionStats
from inference.protocol.finished_request import FinishedRequest, Outcome

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_OPERATION = "text_completion"
_ENDED = (Outcome.COMPLETED, Outcome.PREFETCHED, Outcome.SUPERSEDED, Outcome.CANCELLED)  # without an error

Send = Callable[[CompletionRequest], AsyncGenerator[CompletionChunk, None]]


class Traces:
    """Makes spans."""

    def __init__(self, tracer: "Tracer", model: str) -> None:
        """Use `from_environment`."""
        self._tracer, self._model = tracer, model

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], model: str = "") -> Self | None:
        """None unless the environment names a receiver. `model`: its name, where it is known.

        All of a process share OpenTelemetry's provider. Raises MidtokenError if the packages are missing.
        """
        if not any(environment.get(name) for name in _ENDPOINTS):
            return None
        try:
            from opentelemetry import trace
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError:
            raise MidtokenError(f"{_ENDPOINTS[0]} needs more packages: pip install 'midtoken[telemetry]'") from None
        if not isinstance(trace.get_tracer_provider(), TracerProvider):
            name = environment.get("OTEL_SERVICE_NAME") or "midtoken"
            provider = TracerProvider(resource=Resource.create({"service.name": name}))
            provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
            trace.set_tracer_provider(provider)
        return cls(trace.get_tracer("midtoken"), model)

    async def follow(self, request: CompletionRequest, send: Send) -> AsyncGenerator[CompletionChunk, None]:
        """Sends a client's request with a span of its own, and yields the chunks."""
        with self._open(request) as span:
            context = span.get_span_context()
            parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
            async with aclosing(send(replace(request, traceparent=parent))) as chunks:
                async for chunk in chunks:
                    if chunk.stats is not None:
                        span.set_attributes(_describe(chunk.stats, chunk.finish_reason or ""))
                    yield chunk

    def record(self, finished: FinishedRequest) -> None:
        """Makes the engine's span of a request that has ended just now."""
        ended_ns, stats = time.time_ns(), finished.stats
        began_ns = ended_ns - int(1e9 * finished.duration_s)
        span = self._start(finished.traceparent, is_client=False, began_ns=began_ns)
        for event, ms in (("midtoken.prefill", stats.queue_ms), ("midtoken.decode", stats.first_token_ms)):
            if ms and stats.first_token_ms:
                span.add_event(event, timestamp=began_ns + int(1e6 * ms))
        span.set_attributes(_describe(stats, finished.reason) | {"midtoken.outcome": finished.outcome})
        span.set_attribute("midtoken.usage.cached_tokens", finished.num_cached_tokens)
        if finished.outcome not in _ENDED:
            _note_error(span, finished.reason)
        span.end(ended_ns)

    @contextmanager
    def _open(self, request: CompletionRequest) -> Iterator["Span"]:
        span = self._start(request.traceparent, is_client=True)
        try:
            yield span
        except MidtokenError as error:  # its message may quote the request
            _note_error(span, type(error).__name__)
            raise
        finally:
            span.end()

    def _start(self, parent: str, is_client: bool, began_ns: int | None = None) -> "Span":
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        context = TraceContextTextMapPropagator().extract({"traceparent": parent})
        attributes = {"gen_ai.operation.name": _OPERATION, "gen_ai.provider.name": "midtoken"}
        if self._model:
            attributes["gen_ai.request.model"] = self._model
        kind = SpanKind.CLIENT if is_client else SpanKind.SERVER
        name = f"{_OPERATION} {self._model}".rstrip()
        return self._tracer.start_span(name, context, kind, attributes, start_time=began_ns)


def _describe(stats: CompletionStats, reason: str) -> dict[str, str | int | float | list[str]]:
    return {
        "gen_ai.usage.input_tokens": stats.num_context_tokens,
        "gen_ai.usage.output_tokens": stats.num_tokens,
        "gen_ai.response.finish_reasons": [reason],
        "midtoken.queue_ms": stats.queue_ms,
        "midtoken.first_token_ms": stats.first_token_ms,
    }


def _note_error(span: "Span", kind: str) -> None:
    from opentelemetry.trace import StatusCode

    span.set_attribute("error.type", kind)
    span.set_status(StatusCode.ERROR)

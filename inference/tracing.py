"""Traces with OpenTelemetry, in the words of its conventions for generative AI. They have no text.

They are made only where OTEL_EXPORTER_OTLP_ENDPOINT names a receiver; OpenTelemetry's other variables apply, too. A
client's span has the engine's below it, because the request has its `traceparent`.
"""

import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from inference.errors import MidtokenError
from inference.platforms import find_install_command
from inference.protocol.completion import CompletionChunk, CompletionRequest, CompletionStats
from inference.protocol.finished_request import FinishedRequest, Outcome

if TYPE_CHECKING:
    from opentelemetry.trace import Span

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_OPERATION = "text_completion"
_FAILURES = (Outcome.INVALID, Outcome.OVERLOADED, Outcome.UNREACHABLE, Outcome.FAILED)

Send = Callable[[CompletionRequest], AsyncGenerator[CompletionChunk, None]]


class Traces:
    """Makes spans."""

    def __init__(self, api: Any, model: str) -> None:
        """Use `from_environment`. `api`: the module `opentelemetry.trace`, which is imported only where it is used."""
        self._api, self._model = api, model
        self._tracer = api.get_tracer("midtoken")
        self._parents = api.propagation.tracecontext.TraceContextTextMapPropagator()

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
            from opentelemetry.trace.propagation import tracecontext  # noqa: F401  # a part of `trace` then
        except ImportError:
            raise MidtokenError(f"{_ENDPOINTS[0]} needs more packages: {find_install_command('telemetry')}") from None
        if not isinstance(trace.get_tracer_provider(), TracerProvider):
            name = environment.get("OTEL_SERVICE_NAME") or "midtoken"
            provider = TracerProvider(resource=Resource.create({"service.name": name}))
            provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
            trace.set_tracer_provider(provider)
        return cls(trace, model)

    async def follow(self, request: CompletionRequest, send: Send) -> AsyncGenerator[CompletionChunk, None]:
        """Sends a client's request with a span of its own, and yields the chunks."""
        span = self._start(request.traceparent, is_client=True)
        context = span.get_span_context()
        parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
        try:
            async with aclosing(send(replace(request, traceparent=parent))) as chunks:
                async for chunk in chunks:
                    if chunk.stats is not None:
                        span.set_attributes(_describe(chunk.stats, chunk.finish_reason or ""))
                    yield chunk
        except MidtokenError as error:
            self._note_error(span, type(error).__name__)  # its message may quote the request
            raise
        finally:
            span.end()

    def record(self, finished: FinishedRequest) -> None:
        """Makes the engine's span of a request that has ended just now."""
        ended_ns, stats = time.time_ns(), finished.stats
        began_ns = ended_ns - int(1e9 * finished.duration_s)
        span = self._start(finished.traceparent, is_client=False, began_ns=began_ns)
        if stats.first_token_ms:
            span.add_event("midtoken.prefill", timestamp=began_ns + int(1e6 * stats.queue_ms))
            span.add_event("midtoken.decode", timestamp=began_ns + int(1e6 * stats.first_token_ms))
        span.set_attributes(_describe(stats, finished.reason) | {"midtoken.outcome": finished.outcome})
        span.set_attribute("midtoken.usage.cached_tokens", finished.num_cached_tokens)
        if finished.outcome in _FAILURES:
            self._note_error(span, finished.reason)
        span.end(ended_ns)

    def _start(self, parent: str, is_client: bool, began_ns: int | None = None) -> "Span":
        context = self._parents.extract({"traceparent": parent})
        kind = self._api.SpanKind.CLIENT if is_client else self._api.SpanKind.SERVER
        model = {"gen_ai.request.model": self._model} if self._model else {}
        attributes = {"gen_ai.operation.name": _OPERATION, "gen_ai.provider.name": "midtoken", **model}
        name = f"{_OPERATION} {self._model}".rstrip()
        span: Span = self._tracer.start_span(name, context, kind, attributes, start_time=began_ns)
        return span

    def _note_error(self, span: "Span", kind: str) -> None:
        span.set_attribute("error.type", kind)
        span.set_status(self._api.StatusCode.ERROR)


def _describe(stats: CompletionStats, reason: str) -> dict[str, str | int | float | list[str]]:
    return {
        "gen_ai.usage.input_tokens": stats.num_context_tokens,
        "gen_ai.usage.output_tokens": stats.num_tokens,
        "gen_ai.response.finish_reasons": [reason],
        "midtoken.queue_ms": stats.queue_ms,
        "midtoken.first_token_ms": stats.first_token_ms,
    }

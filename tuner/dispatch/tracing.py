"""Traces of requests for OpenTelemetry: how long each of them was at every step of its way.

=============  =======================================  =============================================
span           begins                                   ends
=============  =======================================  =============================================
``dispatch``   when the request arrives                 when it is answered or refused
``queue``      when it comes to wait                    when the last request of its batch has come
``candidate``  when the batch is complete               when the scheduler sends it
``grant``      when the scheduler sends it              when it goes to its backend
``execution``  when it goes to its backend              when the answer has come
=============  =======================================  =============================================

``dispatch`` is below the caller's span, if it names one, and the others are below ``dispatch``. A request
that has to wait again, because its backend was lost, has them again. A batch has one span in the backend's
trace: its parent is the execution of its first request, which those of the others link to.

OpenTelemetry comes with the extra ``tracing``, and is imported when traces are wanted.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from tuner import __version__
from tuner.dispatch.request import Status, TraceContext

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor
    from opentelemetry.trace import Span

__all__ = ["RequestTrace", "Tracing", "note_planned", "note_sent"]

NAME = "servetune-dispatch"
"""The name of the service in its spans."""
WITHDRAWN = "withdrawn"
"""The status of a request that nobody waits for any more."""


class Tracing:
    """Begins the traces of requests, and exports their spans.

    Args:
        processor: Gets the spans that have ended.
        ratio: Share of the traces beginning here that are recorded; of others the callers decide.

    Raises:
        ModuleNotFoundError: OpenTelemetry is not installed.
    """

    def __init__(self, processor: SpanProcessor, ratio: float = 1.0) -> None:
        from opentelemetry import trace
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self.api: Any = trace
        self.headers: Any = TraceContextTextMapPropagator()
        self._provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(ratio)),
            resource=Resource.create({"service.name": NAME, "service.version": __version__}),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(processor)
        self.tracer: Any = self._provider.get_tracer(NAME, __version__)

    @classmethod
    def over_otlp(cls, endpoint: str, ratio: float) -> Self:
        """Export to a collector that speaks OTLP over gRPC, such as ``http://127.0.0.1:4317``.

        Raises:
            ModuleNotFoundError: OpenTelemetry is not installed.
        """
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        exporter = OTLPSpanExporter(endpoint=endpoint, insecure=endpoint.startswith("http://"))
        return cls(BatchSpanProcessor(exporter), ratio)

    def begin(self, session: str, caller: TraceContext | None, now: float) -> RequestTrace:
        """Begin the trace of a request, or go on with its caller's.

        Args:
            session: Of the request.
            caller: The span that it belongs to, if there is one.
            now: When it arrived, s on the loop's clock.
        """
        return RequestTrace(self, session, caller, now)

    def close(self) -> None:
        """Export what is left; that may take seconds if the collector is away."""
        self._provider.shutdown()


class RequestTrace:
    """The spans of one request. All times are s on the loop's clock.

    Args:
        tracing: Exports them.
        session: Of the request.
        caller: The span that it belongs to, if there is one.
        now: When it arrived.
    """

    def __init__(self, tracing: Tracing, session: str, caller: TraceContext | None, now: float) -> None:
        self._tracing = tracing
        self._epoch = time.time_ns() - round(now * 1e9)
        self._waits_from = self._sent = now
        self._waiting = False
        self._execution: Span | None = None
        above = tracing.headers.extract(dict(caller.headers())) if caller is not None else None
        server, named = tracing.api.SpanKind.SERVER, {"servetune.session": session}
        self._root: Span = tracing.tracer.start_span(
            "dispatch", context=above, kind=server, attributes=named, start_time=self._at(now)
        )
        self._below = tracing.api.set_span_in_context(self._root)

    def _at(self, seconds: float) -> int:
        """Return a time as OpenTelemetry counts it, ns."""
        return self._epoch + round(seconds * 1e9)

    def _span(self, name: str, begin: float, end: float | None, **more: Any) -> Span:
        """Make a span below the request's; one without an end goes on."""
        span: Span = self._tracing.tracer.start_span(
            name, context=self._below, start_time=self._at(begin), **more
        )
        if end is not None:
            span.end(self._at(end))
        return span

    def waits(self, now: float) -> None:
        """Note that the request waits for a batch from now on, unless it waits already."""
        if not self._waiting:
            self._waiting, self._waits_from = True, now

    def planned(self, batch: Sequence[RequestTrace], now: float, accelerator: int) -> None:
        """Note that the scheduler sends the batch of the request.

        Args:
            batch: The traces of all its requests.
            now: The present.
            accelerator: Where the batch will be executed.
        """
        if self._root.is_recording():
            complete = max(one._waits_from for one in batch)
            self._span("queue", self._waits_from, complete)
            chosen = {"servetune.batch.requests": len(batch), "servetune.accelerator": accelerator}
            self._span("candidate", complete, now, attributes=chosen)
        self._waiting, self._sent = False, now

    def sent(self, now: float, backend: str, items: int, first: RequestTrace) -> TraceContext:
        """Note that its batch goes to a backend; return the trace context for the backend.

        Args:
            now: The present.
            backend: The backend's address.
            items: Items of the batch.
            first: The trace of the batch's first request, of which `sent` was called before.
        """
        self.executed(now, "the backend refused the batch")  # which is then sent request by request
        if self._root.is_recording():
            self._span("grant", self._sent, now)
        links = []
        if first is not self and first._execution is not None:
            links = [self._tracing.api.Link(first._execution.get_span_context())]
        where = {"server.address": backend, "servetune.batch.items": items}
        client = self._tracing.api.SpanKind.CLIENT
        span = self._span("execution", now, None, kind=client, attributes=where, links=links)
        self._execution = span
        found: dict[str, str] = {}
        self._tracing.headers.inject(found, self._tracing.api.set_span_in_context(span))
        # With the SDK disabled by its environment there is none, unless the caller has one.
        return TraceContext(found.get("traceparent", ""), found.get("tracestate", ""))

    def executed(self, now: float, problem: str = "") -> None:
        """End the span of its execution, if there is one; a problem says why there is no answer."""
        if self._execution is not None:
            if problem:
                self._execution.set_status(self._tracing.api.StatusCode.ERROR, problem)
            self._execution.end(self._at(now))
            self._execution = None
        self._sent = now

    def ended(self, now: float, status: Status | None, reason: str = "") -> None:
        """The request was answered (no status) or refused."""
        if status is not None:
            self._root.set_status(self._tracing.api.StatusCode.ERROR, reason)
        self._end(now, "ok" if status is None else status.value)

    def withdrawn(self, now: float) -> None:
        """Nobody waits for the answer any more."""
        self._end(now, WITHDRAWN)

    def _end(self, now: float, how: str) -> None:
        if self._waiting and self._root.is_recording():
            self._span("queue", self._waits_from, now)
        self._root.set_attribute("servetune.status", how)
        self._root.end(self._at(now))


def note_planned(batch: Sequence[RequestTrace], now: float, accelerator: int) -> None:
    """Note in the traces of a batch's requests that the scheduler sends it to an accelerator."""
    for one in batch:
        one.planned(batch, now, accelerator)


def note_sent(batch: Sequence[RequestTrace], now: float, backend: str, items: int) -> list[TraceContext]:
    """Note in the traces of a batch's requests that it goes to a backend; return what to pass on of each."""
    return [one.sent(now, backend, items, batch[0]) for one in batch]

"""Traces: every step of a request's way is a span, below the caller's and above the backend's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.dispatch.calls import outcome, reply_to
from tests.dispatch.client.frontends import frontend
from tests.dispatch.clock import run
from tests.dispatch.fakes import MS, Bench, bench, request
from tests.dispatch.front.echo import Echo, running
from tuner.dispatch.backends.catalogue import connect
from tuner.dispatch.dispatcher import Dispatcher
from tuner.dispatch.front import FrontConfig
from tuner.dispatch.front.intake import Intake
from tuner.dispatch.request import Refused, Reply, TraceContext
from tuner.dispatch.tracing import Tracing

CALLER = TraceContext("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "vendor=a")
STEPS = ["queue", "candidate", "grant", "execution"]
Traces = dict[int, dict[str, list[ReadableSpan]]]


class Traced:
    """A dispatcher whose spans are kept."""

    def __init__(self, found: Bench, ratio: float = 1.0) -> None:
        self.found = found
        self._kept = InMemorySpanExporter()
        self._tracing = Tracing(SimpleSpanProcessor(self._kept), ratio)

    async def __aenter__(self) -> Dispatcher:
        found = self.found
        self._dispatcher = Dispatcher(
            found.config,
            found.connect,
            found.counts,
            found.warnings.append,
            found.journal,
            tracing=self._tracing,
        )
        await self._dispatcher.start(1.0)
        return self._dispatcher

    async def __aexit__(self, *_: object) -> None:
        await self._dispatcher.close()
        self._tracing.close()

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        return self._kept.get_finished_spans()

    def traces(self) -> Traces:
        """The spans by trace and name, each in the order of their beginnings."""
        found: Traces = {}
        for span in sorted(self.spans, key=lambda one: one.start_time or 0):
            found.setdefault(span.context.trace_id, {}).setdefault(span.name, []).append(span)
        return found


def lengths(steps: dict[str, list[ReadableSpan]]) -> dict[str, float]:
    """How long each step took, s."""
    return {
        name: sum((span.end_time or 0) - (span.start_time or 0) for span in spans) / 1e9
        for name, spans in steps.items()
    }


def attribute(span: ReadableSpan, name: str) -> object:
    return (span.attributes or {})[name]


def test_the_way_of_a_request() -> None:
    """Its steps follow each other without a gap, below one span from its arrival to its answer."""
    traced = Traced(bench({"slo_ms": 100.0}, servers=1))

    async def main() -> None:
        async with traced as dispatcher:
            await reply_to(dispatcher, request())  # now its kind can share batches
            await asyncio.sleep(1 * MS)
            await reply_to(dispatcher, request())

    run(main())
    _, steps = traced.traces().values()
    assert set(steps) == {"dispatch", *STEPS}
    (root,) = steps["dispatch"]
    assert root.parent is None
    assert root.attributes == {"servetune.session": "m", "servetune.status": "ok"}
    ways = [steps[name][0] for name in STEPS]
    assert {way.parent.span_id for way in ways} == {root.context.span_id}
    assert [way.start_time for way in ways] == [root.start_time, *[way.end_time for way in ways[:-1]]]
    assert ways[-1].end_time == root.end_time
    took = lengths(steps)
    assert took["execution"] == pytest.approx(5 * MS, rel=0.01)
    assert took["candidate"] > 5 * MS  # it could have taken in another one
    assert ways[-1].attributes == {"server.address": "a:1", "servetune.batch.items": 1}


def test_a_batch() -> None:
    """Each request has a trace; the backend's work belongs to the first one's, which the others link to."""
    traced = Traced(bench({"slo_ms": 100.0}, servers=1))
    seen: list[Any] = []

    async def main() -> None:
        async with traced as dispatcher:
            server = traced.found.servers["a:1"]
            infer = server.infer
            await reply_to(dispatcher, request())  # now its kind can share batches
            await asyncio.sleep(1 * MS)

            async def noting(model: str, like: Any, inputs: Any) -> Reply:
                seen.append(like.trace)
                return await infer(model, like, inputs)

            server.infer = noting  # type: ignore[method-assign]
            first = asyncio.ensure_future(reply_to(dispatcher, request()._replace(trace=CALLER)))
            await asyncio.sleep(1 * MS)
            await asyncio.gather(first, reply_to(dispatcher, request()))

    run(main())
    traces = traced.traces()
    caller = int(CALLER.traceparent.split("-")[1], 16)
    ours = traces.pop(caller)
    _, others = traces.values()
    assert f"{ours['dispatch'][0].parent.span_id:016x}" == CALLER.traceparent.split("-")[2]
    carrier = ours["execution"][0].context
    assert seen == [TraceContext(f"00-{caller:032x}-{carrier.span_id:016x}-01", "vendor=a")]
    assert [link.context.span_id for link in others["execution"][0].links] == [carrier.span_id]
    assert not ours["execution"][0].links
    assert lengths(ours)["queue"] == pytest.approx(1 * MS)
    assert lengths(others)["queue"] == 0
    assert attribute(others["candidate"][0], "servetune.batch.requests") == 2


def test_what_goes_wrong() -> None:
    """A lost server is an execution with an error, and the steps come again; a refusal says its reason."""
    traced = Traced(bench({"slo_ms": 200.0}, policy="eager"))

    async def main() -> None:
        async with traced as dispatcher:
            traced.found.servers["a:1"].alive = False
            assert isinstance(await reply_to(dispatcher, request()), Reply)
            traced.found.servers["b:1"].alive = False
            await asyncio.sleep(3.0)
            assert isinstance(await outcome(reply_to(dispatcher, request())), Refused)

    run(main())
    again, refused = traced.traces().values()
    assert [len(again[name]) for name in STEPS] == [2] * 4
    assert [span.status.description for span in again["execution"]] == ["a:1: connection refused", None]
    assert set(refused) == {"dispatch"}
    (root,) = refused["dispatch"]
    assert attribute(root, "servetune.status") == "unavailable"
    assert "no backend is up" in (root.status.description or "")


def test_what_waits_too_long_or_goes_away() -> None:
    """It was in the queue until its end, which its trace says."""
    traced = Traced(bench({"slo_ms": 1000.0}, servers=1))

    async def main() -> None:
        async with traced as dispatcher:
            now = asyncio.get_running_loop().time()
            late = asyncio.ensure_future(outcome(reply_to(dispatcher, request(deadline=now + 1 * MS))))
            gone = asyncio.ensure_future(reply_to(dispatcher, request()))
            await asyncio.sleep(2 * MS)
            gone.cancel()
            await asyncio.gather(late, gone, return_exceptions=True)

    run(main())
    ends = [attribute(trace["dispatch"][0], "servetune.status") for trace in traced.traces().values()]
    assert ends == ["deadline", "withdrawn"]
    assert all("queue" in trace for trace in traced.traces().values())


def test_sampling() -> None:
    """A share of our own traces is recorded; of a caller's trace the caller decides."""
    traced = Traced(bench({"slo_ms": 100.0}, servers=1), ratio=1e-9)
    quiet = TraceContext(CALLER.traceparent[:-2] + "00")

    async def main() -> None:
        async with traced as dispatcher:
            for trace in (None, CALLER, quiet):
                await reply_to(dispatcher, request()._replace(trace=trace))

    run(main())
    assert len(traced.traces()) == 1


def test_grants() -> None:
    """A frontend says which trace it asks for, and gets the span that the backend's work belongs to."""
    traced = Traced(bench({"slo_ms": 100.0}, servers=1, mode="grants"))
    passed: list[TraceContext | None] = []

    async def main() -> None:
        async with traced as dispatcher, frontend(dispatcher) as client:
            async with client.grant("m", trace=CALLER) as granted:
                passed.append(granted.trace)
                await asyncio.sleep(7 * MS)
            await asyncio.sleep(10 * MS)

    run(main())
    (steps,) = traced.traces().values()
    execution = steps["execution"][0]
    place = f"{execution.context.trace_id:032x}-{execution.context.span_id:016x}"
    assert passed == [TraceContext(f"00-{place}-01", "vendor=a")]
    assert lengths(steps)["execution"] == pytest.approx(7 * MS, abs=1 * MS)
    assert attribute(steps["dispatch"][0], "servetune.status") == "ok"


@pytest.mark.parametrize("traces", [True, False])
def test_the_headers_of_callers(traces: bool) -> None:
    """They are read if requests are traced."""
    seen: list[TraceContext | None] = []

    class Noting:
        sessions = ("m",)

        async def infer(self, request: Any, write: Callable[[Reply], bytes]) -> bytes:
            seen.append(request.trace)
            return write(Reply(()))

    headers = dict(CALLER.headers())
    intake = Intake(Noting(), 5, traces=traces)  # type: ignore[arg-type]
    for header in (lambda name: headers[name], lambda _: None):
        asyncio.run(intake.infer(request(), header, lambda _: b""))

    assert seen == [CALLER if traces else None, None]


def test_the_trace_goes_with_the_batch() -> None:
    """As metadata of gRPC, to Triton and TensorFlow Serving; callers may also send it by HTTP."""
    service = Echo()
    config = FrontConfig(grpc=("127.0.0.1", 0), http=("127.0.0.1", 0), traces=True)
    like = request(session="echo")._replace(trace=CALLER)
    with running(service, config) as fronts:

        async def send(target: str) -> None:
            connection = connect([target])
            await connection.infer("echo", like, like.inputs)
            await connection.close()

        host, port = fronts.grpc_address or ("", 0)
        for scheme in ("triton", "tfserving"):
            asyncio.run(send(f"{scheme}://{host}:{port}/echo"))
        client = HTTPConnection(*(fronts.http_address or ("", 0)), timeout=60)
        body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]}
        client.request("POST", "/v2/models/echo/infer", json.dumps(body), dict(CALLER.headers()))
        assert client.getresponse().status == 200
        client.close()

    assert [one.trace for one in service.requests] == [CALLER] * 3


def test_a_collector() -> None:
    """The spans of a dispatcher's process reach it over OTLP, at the end at the latest."""
    got: list[str] = []

    def export(message: bytes, _context: Any) -> bytes:
        found = ExportTraceServiceRequest.FromString(message)
        got.extend(s.name for r in found.resource_spans for one in r.scope_spans for s in one.spans)
        return b""

    handler = grpc.method_handlers_generic_handler(
        "opentelemetry.proto.collector.trace.v1.TraceService",
        {"Export": grpc.unary_unary_rpc_method_handler(export)},
    )
    server = grpc.server(ThreadPoolExecutor(1), handlers=[handler])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    tracing = Tracing.over_otlp(f"http://127.0.0.1:{port}", 1.0)
    tracing.begin("m", None, 0.0).ended(1.0, None)
    tracing.close()
    server.stop(None).wait()

    assert got == ["dispatch"]


@pytest.mark.parametrize("caller", [None, CALLER])
@pytest.mark.parametrize("mode", ["proxy", "grants"])
def test_a_kit_that_is_disabled(
    caller: TraceContext | None, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By OpenTelemetry's own switch: requests are answered, and a caller's trace goes on."""
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    traced = Traced(bench({"slo_ms": 100.0}, servers=1, mode=mode))
    passed: list[TraceContext | None] = []

    async def main() -> None:
        async with traced as dispatcher:
            if mode == "grants":
                async with frontend(dispatcher) as client, client.grant("m", trace=caller) as granted:
                    passed.append(granted.trace)
                return
            server = traced.found.servers["a:1"]
            infer = server.infer

            async def noting(model: str, like: Any, inputs: Any) -> Reply:
                passed.append(like.trace)
                return await infer(model, like, inputs)

            server.infer = noting  # type: ignore[method-assign]
            assert isinstance(await reply_to(dispatcher, request()._replace(trace=caller)), Reply)

    run(main())
    assert not traced.spans
    assert [tuple(one.headers()) if one else () for one in passed] == [caller.headers() if caller else ()]

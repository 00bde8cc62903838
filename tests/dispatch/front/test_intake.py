"""What is counted of the requests that the fronts do not let in."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from tests.dispatch.fakes import request
from tests.dispatch.front.echo import Echo
from tuner.dispatch.front import intake
from tuner.dispatch.front.intake import Intake
from tuner.dispatch.grant import Ask
from tuner.dispatch.metrics import Metrics
from tuner.dispatch.request import Refused, Request, Status


def counting() -> tuple[Intake, list[tuple[str, Status]]]:
    counted: list[tuple[str, Status]] = []
    service = Echo()
    return Intake(service, 1, service, count=lambda *one: counted.append(one)), counted


async def status(call: Coroutine[Any, Any, object]) -> Status | None:
    try:
        await call
    except Refused as refused:
        return refused.status
    return None


def test_a_request_that_is_not_let_in_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Because it is late, or too much is in progress; the dispatcher counts those that it gets."""

    async def main() -> None:
        taken, counted = counting()

        def infer(session: str, deadline: float | None = None) -> Coroutine[Any, Any, object]:
            asked = Request(session, request().inputs, deadline=deadline)
            return taken.infer(asked, lambda _: None, lambda _: b"")

        slow = asyncio.ensure_future(infer("slow"))
        await asyncio.sleep(0)
        assert await status(infer("echo")) is Status.EXHAUSTED
        assert await status(taken.grant(Ask("echo"))) is Status.EXHAUSTED
        assert await status(infer("echo", time.monotonic() - 1)) is Status.DEADLINE
        slow.cancel()
        await asyncio.gather(slow, return_exceptions=True)
        monkeypatch.setattr(intake, "MOST_BYTES", 1)
        assert await status(infer("echo")) is Status.EXHAUSTED
        assert counted == [
            ("echo", Status.EXHAUSTED),
            ("echo", Status.EXHAUSTED),
            ("echo", Status.DEADLINE),
            ("echo", Status.EXHAUSTED),
        ]
        monkeypatch.undo()
        assert await status(infer("UNAVAILABLE")) is Status.UNAVAILABLE
        assert await status(infer("nobody")) is Status.NOT_FOUND
        assert len(counted) == 4

    asyncio.run(main())


def test_metrics_have_each_request_once() -> None:
    """Those that the dispatcher refuses, and those that it never got."""
    metrics = Metrics()

    metrics.refused("m", Status.EXHAUSTED)

    page = metrics.page([]).decode()
    assert 'servetune_dispatch_requests_total{session="m"} 1.0' in page
    assert 'servetune_dispatch_answers_total{session="m",status="exhausted"} 1.0' in page
    assert metrics.totals.failures == 1

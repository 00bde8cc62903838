"""Knobs of a dispatcher: what a change leaves alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.dispatch.clock import run
from tests.dispatch.fakes import bench, request
from tuner.dispatch.knobs import current, set_knobs
from tuner.dispatch.request import Reply


def test_limits_that_are_not_named_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are the server's remain so, even if it was not up when another knob was set."""

    async def at_once(function: Callable[..., None], *arguments: object) -> None:
        function(*arguments)

    monkeypatch.setattr(asyncio, "to_thread", at_once)  # virtual time waits for no thread

    async def main() -> None:
        found = bench({"slo_ms": 500.0}, servers=1, policy="eager")
        server = found.servers["a:1"]
        server.alive = False
        async with found as dispatcher:
            await set_knobs(dispatcher.pools, {"deferral": 0.2, "m.queue": 50})
            (session,) = dispatcher.pools[0].sessions
            assert (session.max_batch, session.queue) == (None, 50)
            server.alive = True
            await asyncio.sleep(1.0)
            assert current(dispatcher.pools)["m.max_batch"] == 16
            assert isinstance(await dispatcher.infer(request(items=16)), Reply)
            await set_knobs(dispatcher.pools, {"m.max_batch": 4})
            (session,) = dispatcher.pools[0].sessions
            assert (session.max_batch, session.queue) == (4, 50)

    run(main())

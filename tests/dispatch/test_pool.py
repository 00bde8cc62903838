"""What a pool owes its scheduler: time that goes on, and streams of what can share a batch."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tests.dispatch.clock import run
from tests.dispatch.fakes import MS, bench, request
from tuner.dispatch.request import Reply


@pytest.mark.parametrize("policy", ["symphony", "eager"])
@pytest.mark.parametrize("change", ["limit", "lost"])
def test_a_timer_of_the_old_scheduler_does_not_move_the_clock(policy: str, change: str) -> None:
    """A new scheduler for which nothing waits is not woken, and takes the next request at its time."""

    async def main() -> None:
        options = {"deferral": 1.0} if policy == "symphony" else {}
        found = bench({"slo_ms": 300.0}, policy=policy, options=options)
        async with found as dispatcher:
            loop, pool = asyncio.get_running_loop(), dispatcher.pools[0]
            call = asyncio.ensure_future(dispatcher.infer(request()))
            await asyncio.sleep(1 * MS)
            call.cancel()
            await asyncio.sleep(1 * MS)
            if change == "limit":
                pool.set(pool.rules, [replace(pool.session("m"), max_batch=8)])
            else:
                pool.servers[1].lost("b:1: connection reset")
            await asyncio.sleep(0.5)
            began = loop.time()
            assert isinstance(await dispatcher.infer(request()), Reply)
            assert loop.time() - began <= 0.3

    run(main())

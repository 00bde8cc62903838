"""The dispatcher's event loop: its clock, and timers by it."""

from __future__ import annotations

import asyncio
import time

from tuner.dispatch import event_loop


def test_its_clock_is_finer_than_milliseconds() -> None:
    """It is the clock by which everything else is timed."""
    found: list[float] = []

    async def look() -> None:
        loop = asyncio.get_running_loop()
        found.extend((time.monotonic(), loop.time(), time.monotonic()))

    event_loop.run(look())

    assert found == sorted(found)


def test_timers_are_set_by_that_clock() -> None:
    """They come after what was asked for, give or take the loop's own milliseconds."""
    passed: list[float] = []

    async def wait() -> None:
        loop = asyncio.get_running_loop()
        at, rung = loop.time() + 0.02, loop.create_future()
        loop.call_at(at, rung.set_result, None)
        await rung
        passed.append(time.monotonic() - at)

    event_loop.run(wait())

    assert passed[0] > -0.002

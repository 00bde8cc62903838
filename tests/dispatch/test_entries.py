"""Which request each number in a scheduler's queue stands for."""

from __future__ import annotations

import asyncio

from tests.dispatch.clock import run
from tuner.dispatch.pool.entries import Entries
from tuner.dispatch.pool.pending import Pending
from tuner.dispatch.request import Request


def test_what_a_dropped_request_leaves_does_not_drop_it_again() -> None:
    """A policy may give up some of its items, and come to the others while it waits anew."""

    async def main() -> None:
        entries, future = Entries(), asyncio.get_running_loop().create_future()
        one = Pending(Request("m", ()), 3, 0.0, 1.0, future, None, queued=True)
        first, *others = entries.add(one, 3)
        assert entries.take([first]) == [one]
        again, *rest = entries.add(one, 3)
        assert entries.take(others) == []
        assert entries.take([again]) == [one]
        one.queued = False
        assert entries.take(rest) == []
        assert len(entries) == 0

    run(main())

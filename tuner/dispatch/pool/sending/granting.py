"""Lets the frontends send a batch: each its own requests, straight to the server, which merges them.

A lane is busy until every frontend of the batch has said what came of its requests. One that says nothing
costs the lane some time, and the server is probed at once; so it is if none of them was answered in time. The
word of a frontend alone takes no server out, with one exception: where frontends say of one batch after the
other that it was refused, while those that go to another server are answered, nothing else is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from tuner.dispatch.grant import Ended, Grant
from tuner.dispatch.pool.pending import Pending, traces_of
from tuner.dispatch.pool.sending.lanes import Batch
from tuner.dispatch.pool.sending.sender import Sender
from tuner.dispatch.request import TraceContext
from tuner.dispatch.tracing import note_sent

__all__ = ["GrantSender"]


class GrantSender(Sender):
    """The way of batches past the dispatcher."""

    enough = 10  # it has answered others than those that were refused, which may have been malformed

    async def _carry(self, batch: Batch, requests: Sequence[Pending]) -> None:
        """Grant the requests, and wait until they have ended."""
        server = batch.lane.server
        if await self._compared(batch, requests, "frontends say that it refuses their requests"):
            return
        loop = asyncio.get_running_loop()
        began = loop.time()
        grants = _grants(batch, requests, began)
        for one, grant in zip(requests, grants, strict=True):
            one.answer(grant)
        patience = self._beliefs.patience(server, batch.stream, batch.items)
        done, silent = await asyncio.wait([grant.ended for grant in grants], timeout=patience)
        ends = [one.result() for one in done]
        overdue = loop.time() >= min(one.due for one in requests)  # before, frontends withdraw requests
        in_vain = overdue and all(end.seconds is None for end in ends)
        if silent or in_vain:
            server.doubt(f"{server.address} did not answer a granted request in time")
        for reason in [end.lost for end in ends if end.lost]:
            server.doubt(reason)
        if silent:
            late = asyncio.gather(*[grant.ended for grant in grants])
            late.add_done_callback(partial(self._learn_late, batch, requests, began))
        else:
            self._note_refusals(batch, ends)
            self._learn_from(batch, requests, ends, loop.time() - began)

    def _learn_from(
        self, batch: Batch, requests: Sequence[Pending], ends: Sequence[Ended], passed: float
    ) -> None:
        """Learn from a batch that has ended; until the last frontend said so, this time had passed, s."""
        seconds = [end.seconds for end in ends if end.seconds is not None]
        asked = min(max(seconds, default=0.0), passed)
        worked = max(asked - batch.lane.server.round_trip, 1e-6)
        if all(end.answered for end in ends):
            self._learn(batch, requests, worked)
            self._beliefs.frontend_was_away(passed - asked, asyncio.get_running_loop().time())
        elif seconds:  # a refusal may have come sooner than an answer, but it was no idle time
            self._count(batch, requests, worked)

    def _note_refusals(self, batch: Batch, ends: Sequence[Ended]) -> None:
        """Note for its server what came of a batch's requests; each may be malformed by itself."""
        outlier, session = batch.lane.server.outlier, batch.stream.session.name
        if any(end.answered for end in ends):
            outlier.answered(session)
        elif any(end.status is not None for end in ends):
            batch.refused = True
            outlier.refused(session)

    def _learn_late(
        self, batch: Batch, requests: Sequence[Pending], began: float, late: asyncio.Future[list[Ended]]
    ) -> None:
        """Learn from a batch whose frontends were not waited for, if all were answered in the end."""
        seconds = [end.seconds for end in late.result() if end.answered and end.seconds is not None]
        if len(seconds) == len(requests):
            asked = min(max(seconds), asyncio.get_running_loop().time() - began)
            self._teach(batch, requests, max(asked - batch.lane.server.round_trip, 1e-6))


def _grants(batch: Batch, requests: Sequence[Pending], now: float) -> list[Grant]:
    """Return the grants of a batch's requests, which are given now, and note that in their traces."""
    server, session = batch.lane.server, batch.stream.session.name
    spans: Sequence[TraceContext | None] = [None] * len(requests)
    if traces := traces_of(requests):
        spans = note_sent(traces, now, server.address, batch.items)
    return [
        Grant(server.backend, server.models[session], one.due - now, span, server.forms[session])
        for one, span in zip(requests, spans, strict=True)
    ]

"""Lets the frontends send a batch: each its own requests, straight to the server, which merges them.

A lane is busy until every frontend of the batch has said what came of its requests. One that says nothing
costs the lane some time, and the server is probed at once; the word of a frontend alone takes no server out.
"""

from __future__ import annotations

import asyncio

from tuner.dispatch.grant import Grant
from tuner.dispatch.pool.beliefs import Beliefs
from tuner.dispatch.pool.lanes import Batch
from tuner.dispatch.pool.proxy import Elsewhere
from tuner.dispatch.pool.rules import Observer

__all__ = ["GrantSender"]


class GrantSender:
    """The way of batches past the dispatcher.

    Args:
        beliefs: Learn from every batch.
        observer: Hears of every batch.
        elsewhere: Takes the requests of a server that is lost.
    """

    def __init__(self, beliefs: Beliefs, observer: Observer, elsewhere: Elsewhere) -> None:
        self._beliefs = beliefs
        self._observer = observer
        self._elsewhere = elsewhere

    async def send(self, batch: Batch) -> None:
        """Grant the requests of one batch, and wait until they have ended."""
        server, session = batch.lane.server, batch.stream.session.name
        requests = [one for one in batch.requests if not one.over]
        if not requests:
            return
        if not server.up:
            self._elsewhere(requests, server.reason)
            return
        loop = asyncio.get_running_loop()
        began = loop.time()
        grants = [Grant(server.backend, server.models[session], one.due - began) for one in requests]
        for one, grant in zip(requests, grants, strict=True):
            one.answer(grant)
        patience = self._beliefs.patience(server, batch.stream, batch.items)
        done, silent = await asyncio.wait([grant.ended for grant in grants], timeout=patience)
        ends = [one.result() for one in done]
        for reason in [end.lost for end in ends if end.lost]:
            server.doubt(reason)
        if silent:
            server.doubt(f"{server.address} did not answer a granted request in time")
        seconds = [end.seconds for end in ends if end.seconds is not None]
        if len(seconds) == len(grants):
            self._learn(batch, sum(one.items for one in requests), max(seconds), loop.time() - began)

    def _learn(self, batch: Batch, items: int, asked: float, passed: float) -> None:
        """Learn from a batch.

        Args:
            batch: The batch.
            items: That were executed.
            asked: The longest time from sending one of its requests to the answer, s.
            passed: From the grant until the last frontend said so, s.
        """
        now, server = asyncio.get_running_loop().time(), batch.lane.server
        asked = min(asked, passed)
        worked = max(asked - server.round_trip, 1e-6)
        self._beliefs.profile(server, batch.stream).observe(items, worked, now)
        self._beliefs.frontend_was_away(passed - asked)
        self._observer.executed(batch.stream.session.name, server.address, items, worked)

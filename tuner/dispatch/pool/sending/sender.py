"""The way of a batch to its server; how it goes there is the subclasses' part."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar

from tuner.dispatch.backends.outlier import Came
from tuner.dispatch.pool.beliefs import Beliefs
from tuner.dispatch.pool.observer import Observer
from tuner.dispatch.pool.pending import Pending, traces_of
from tuner.dispatch.pool.sending.lanes import Batch

__all__ = ["Answered", "Compare", "Elsewhere", "Sender"]

Elsewhere = Callable[[Sequence[Pending], str], None]
"""Lets requests go to another server, because of a reason."""
Answered = Callable[[Sequence[Pending]], None]
"""Hears that a server takes requests such as these."""
Compare = Callable[[Batch, Sequence[Pending]], Awaitable[Came]]
"""Sends requests of a batch to another server, and returns what came of them; see `Lanes.compare`."""


class Sender(ABC):
    """Sends the batches of a pool.

    Args:
        beliefs: Learn from every batch.
        observer: Hears of every batch.
        elsewhere: Takes the requests of a server that is lost.
        answered: Hears of requests of no stream that a server has answered.
        compare: Asks another server.
    """

    enough: ClassVar[int]
    """How often another server must answer, so that one which refuses such requests is an outlier."""

    def __init__(
        self,
        beliefs: Beliefs,
        observer: Observer,
        elsewhere: Elsewhere,
        answered: Answered,
        compare: Compare,
    ) -> None:
        self._beliefs = beliefs
        self._observer = observer
        self._give_elsewhere = elsewhere
        self._answered = answered
        self._compare = compare

    async def send(self, batch: Batch) -> None:
        """Send those of a batch's requests that somebody waits for; see :data:`~.lanes.Send`."""
        server = batch.lane.server
        requests = [one for one in batch.requests if not one.over]
        if requests and server.up:
            await self._carry(batch, requests)
            self._note_end(requests)
        else:
            self._elsewhere(requests, server.reason)

    @abstractmethod
    async def _carry(self, batch: Batch, requests: Sequence[Pending]) -> None:
        """Send requests, at least one, to the server of their batch, which is up."""

    def _elsewhere(self, requests: Sequence[Pending], reason: str) -> None:
        """Let requests go to another server, because this one does not answer."""
        self._note_end(requests, reason)
        self._give_elsewhere(requests, reason)

    async def _compared(self, batch: Batch, requests: Sequence[Pending], words: str) -> bool:
        """Have another server show whether a batch's server is to blame for what it refuses.

        Args:
            batch: The batch.
            requests: Of it, those that the other server gets.
            words: Why the batch's server refuses such requests.

        Returns:
            Whether another server got them: then they have their end, or go elsewhere.
        """
        server, session = batch.lane.server, batch.stream.session.name
        if batch.compared or not server.outlier.questionable(session):
            return False
        came = await self._compare(batch, requests)
        server.compared(session, words, came, self.enough)
        return came.asked

    def _note_end(self, requests: Sequence[Pending], problem: str = "") -> None:
        """Note in the traces of requests that their execution has ended, if it had begun."""
        for trace in traces_of(requests):
            trace.executed(asyncio.get_running_loop().time(), problem)

    def _learn(self, batch: Batch, requests: Sequence[Pending], seconds: float) -> None:
        """Learn that a batch's server worked on these requests for so long, s; that has just ended."""
        batch.executed = True
        batch.lane.server.outlier.answered(batch.stream.session.name)
        self._teach(batch, requests, seconds)
        self._count(batch, requests, seconds)
        if batch.stream.kind is None:
            self._answered(requests)

    def _count(self, batch: Batch, requests: Sequence[Pending], seconds: float) -> None:
        """Count a batch of these requests, on which its server worked for so long, s."""
        server, items = batch.lane.server, sum([one.items for one in requests])
        self._observer.executed(batch.stream.session.name, server.address, len(requests), items, seconds)

    def _teach(self, batch: Batch, requests: Sequence[Pending], seconds: float) -> None:
        """Have the profile learn that a batch of these requests, which has just ended, took so long, s."""
        now, items = asyncio.get_running_loop().time(), sum([one.items for one in requests])
        trial = any(one.trial for one in requests)
        self._beliefs.learn(batch.lane.server, batch.stream, items, seconds, now, trial=trial)

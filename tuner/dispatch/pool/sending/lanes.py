"""Lanes: the accelerators of a pool, and the batches that are on their way to them.

A server has as many lanes as it executes batches at a time. A lane that got requests is busy until each of
them is answered or goes elsewhere, whatever goes wrong on the way: then it is given back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from tuner.dispatch.backends.outlier import Came
from tuner.dispatch.backends.server import WatchedServer
from tuner.dispatch.pool.pending import Pending
from tuner.dispatch.pool.sending.accelerators import Accelerator, Accelerators
from tuner.dispatch.pool.stream import Stream
from tuner.dispatch.request import Status

__all__ = ["Batch", "Lane", "Lanes", "Send"]

FAILED = "the dispatcher failed on its batch; its log says why"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Lane:
    """An accelerator, as one generation of a pool's lanes has it."""

    server: WatchedServer
    server_number: int
    """Of its server, counted from 0 among those that are up."""
    accelerator: Accelerator


@dataclass
class Batch:
    """Requests of one stream on their way to a lane."""

    lane: Lane
    stream: Stream
    requests: Sequence[Pending]
    items: int = field(init=False)
    executed: bool = False
    """Whether its server has answered it, as one."""
    compared: bool = False
    """Whether it shows what another server is worth, which refuses such requests."""
    refused: bool = False
    """Whether its server has answered none of it, and refused some."""

    def __post_init__(self) -> None:
        self.items = sum(one.items for one in self.requests)


Send = Callable[[Batch], Awaitable[None]]
"""Sends a batch, and waits until each of its requests is answered or goes elsewhere."""


class Lanes:
    """The lanes of the servers that are up.

    :meth:`renew` begins a generation of lanes, for a new scheduler. What earlier generations or other pools
    have sent goes on: the new scheduler learns from :attr:`busy_until` when that should have ended, and from
    ``ended`` that it has. What another pool sends later is not known to it, so a batch waits here until those
    of other pools have ended.

    Args:
        send: Sends a batch.
        ended: Is called with the place of a lane of the present generation when a batch of the scheduler has
            ended there, or all that was on the way when the generation began; and with whether it was
            executed.
        accelerators: Of all servers.
    """

    def __init__(self, send: Send, ended: Callable[[int, bool], None], accelerators: Accelerators) -> None:
        self._send = send
        self._ended = ended
        self._accelerators = accelerators
        self._present: list[Lane] = []
        self._generation = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.busy_until: dict[int, float] = {}
        """Lanes that were busy when the generation began, and when they should be free, s."""

    @property
    def server_numbers(self) -> list[int]:
        """The number of each present lane's server: to the scheduler servers are kinds of accelerators."""
        return [lane.server_number for lane in self._present]

    def idle_servers(self) -> set[int]:
        """Return the numbers of the servers that have a present lane with nothing on its way."""
        return {lane.server_number for lane in self._present if not lane.accelerator.batches}

    @property
    def occupied(self) -> bool:
        """Whether anything is on its way to a present lane, whoever sent it."""
        return any(lane.accelerator.batches for lane in self._present)

    @property
    def busy(self) -> bool:
        """Whether a batch is on its way."""
        return bool(self._tasks)

    def renew(self, servers: Iterable[WatchedServer]) -> None:
        """Begin a generation: the lanes of these servers."""
        self._generation += 1
        self._present = [
            Lane(server, server_number, self._accelerators.of(server.address, number))
            for server_number, server in enumerate(servers)
            for number in range(server.instances)
        ]
        self.busy_until = {}
        for place, lane in enumerate(self._present):
            if left := set(lane.accelerator.batches):
                self.busy_until[place] = lane.accelerator.ends
                self._follow(place, left)

    def _follow(self, place: int, left: set[asyncio.Task[None]]) -> None:
        """Say that a lane is free when the batches that are left have ended, unless a generation begins."""
        generation = self._generation

        def ended(task: asyncio.Task[None]) -> None:
            left.discard(task)
            if not left and generation == self._generation:
                self._ended(place, True)

        for task in list(left):
            task.add_done_callback(ended)

    def launch(self, place: int, stream: Stream, requests: Sequence[Pending], ends: float) -> None:
        """Send requests to a lane of the present generation; they should have been executed at a time, s."""
        lane = self._present[place]
        batches = [Batch(lane, stream, part) for part in _parts(requests, stream.largest)]
        ended = partial(self._give_back, place, self._generation)
        # With nothing to send, a batch ends when what it was planned behind has ended, and not before.
        others = [
            batch for batch, sender in lane.accelerator.batches.items() if sender is not self or not batches
        ]
        task = asyncio.get_running_loop().create_task(self._execute(batches, others, ended))
        lane.accelerator.take(task, self, ends)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def compare(self, batch: Batch, requests: Sequence[Pending]) -> Came:
        """Send requests of a batch to another server of the present generation; wait for what comes of them.

        Args:
            batch: What is sent to its server is refused.
            requests: Of it, some that wait.

        Returns:
            What that server did; if it was asked, the requests have their end, or go elsewhere.
        """
        stream, loop = batch.stream, asyncio.get_running_loop()
        lanes = [
            lane
            for lane in self._present
            if lane.server is not batch.lane.server
            and lane.server.up
            and not lane.server.outlier.suspected(stream.session.name)
        ]
        if not lanes:
            return Came.NOBODY
        lanes = [lane for lane in lanes if not lane.accelerator.comparing]
        if not lanes:  # two that waited for each other would stand still until a request is due
            return Came.BUSY
        lane = min(lanes, key=lambda one: len(one.accelerator.batches))
        there, others = Batch(lane, stream, requests, compared=True), list(lane.accelerator.batches)
        # It waits no longer than its requests do.
        left = max(one.due for one in requests) - loop.time()
        task = loop.create_task(self._execute([there], others, lambda _: None, left))
        lane.accelerator.take(task, there, loop.time())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        batch.lane.accelerator.comparing += 1
        try:
            await asyncio.wait((task,))
        finally:
            batch.lane.accelerator.comparing -= 1
        if there.executed:
            return Came.ANSWERED
        return Came.REFUSED if there.refused else Came.NOTHING

    async def _execute(
        self,
        batches: Sequence[Batch],
        others: Collection[asyncio.Task[None]],
        ended: Callable[[bool], None],
        patience: float | None = None,
    ) -> None:
        """Send batches one after the other, when the others have ended, and give the lane back.

        Args:
            batches: To be sent.
            others: Those before them.
            ended: Hears of the end, and whether all were executed.
            patience: Longest wait for the others, s; None for any.
        """
        try:
            if others:
                await asyncio.wait(others, timeout=patience)
            for batch in batches:
                try:
                    await self._send(batch)
                except Exception:
                    _log.exception("a batch of %s failed in the dispatcher", batch.stream.session.name)
                    for one in batch.requests:
                        one.refuse(Status.INTERNAL, FAILED)
        finally:
            ended(bool(batches) and all(batch.executed for batch in batches))

    def _give_back(self, place: int, generation: int, executed: bool) -> None:
        if generation == self._generation:
            self._ended(place, executed)


def _parts(requests: Sequence[Pending], largest: int) -> list[list[Pending]]:
    """Return requests in batches of at most so many items; a request is never divided."""
    parts: list[list[Pending]] = [[]]
    items = 0
    for one in requests:
        if parts[-1] and items + one.items > largest:
            parts.append([])
            items = 0
        parts[-1].append(one)
        items += one.items
    return [part for part in parts if part]

"""Lanes: the accelerators of a pool, and the batches that are on their way to them.

A server has as many lanes as it executes batches at a time. A lane that got requests is busy until each of
them is answered or goes elsewhere, whatever goes wrong on the way: then it is given back.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from tuner.dispatch.backends.server import WatchedServer
from tuner.dispatch.pool.beliefs import Stream
from tuner.dispatch.pool.pending import Pending
from tuner.dispatch.request import Status

__all__ = ["Batch", "Lane", "Lanes", "Send"]

FAILED = "the dispatcher failed on its batch; its log says why"
_log = logging.getLogger(__name__)


@dataclass(eq=False)
class Lane:
    """An accelerator: one of the instances of a server."""

    server: WatchedServer
    kind: int
    """The place of the server among those that are up."""
    free: float = -math.inf
    """When its last batch ended, s."""


@dataclass
class Batch:
    """Requests of one stream on their way to a lane."""

    lane: Lane
    stream: Stream
    requests: Sequence[Pending]
    items: int = field(init=False)

    def __post_init__(self) -> None:
        self.items = sum(one.items for one in self.requests)


Send = Callable[[Batch], Awaitable[None]]
"""Sends a batch, and waits until each of its requests is answered or goes elsewhere."""


class Lanes:
    """The lanes of the servers that are up.

    :meth:`renew` begins a generation of lanes. A batch of an earlier generation goes on, but its end means
    nothing to the present scheduler.

    Args:
        send: Sends a batch.
        ended: Is called with the place of a lane of the present generation that is free again.
    """

    def __init__(self, send: Send, ended: Callable[[int], None]) -> None:
        self._send = send
        self._ended = ended
        self._present: list[Lane] = []
        self._known: dict[tuple[str, int], Lane] = {}
        self._generation = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def kinds(self) -> list[int]:
        """The kinds of the present lanes."""
        return [lane.kind for lane in self._present]

    @property
    def busy(self) -> bool:
        """Whether a batch is on its way."""
        return bool(self._tasks)

    def renew(self, servers: Iterable[WatchedServer]) -> None:
        """Begin a generation: the lanes of these servers."""
        self._generation += 1
        self._present = [
            self._lane(server, kind, number)
            for kind, server in enumerate(servers)
            for number in range(server.instances)
        ]

    def _lane(self, server: WatchedServer, kind: int, number: int) -> Lane:
        """Return one of a server's lanes, which outlives schedulers: it may still execute a batch."""
        lane = self._known.setdefault((server.address, number), Lane(server, kind))
        lane.kind = kind
        return lane

    def launch(self, place: int, stream: Stream, requests: Sequence[Pending]) -> None:
        """Send requests to a lane of the present generation."""
        lane = self._present[place]
        batches = [Batch(lane, stream, part) for part in _parts(requests, stream.largest)]
        ended = partial(self._give_back, lane, place, self._generation)
        task = asyncio.get_running_loop().create_task(self._execute(batches, ended))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _execute(self, batches: Iterable[Batch], ended: Callable[[], None]) -> None:
        """Send batches one after the other, and give the lane back."""
        try:
            for batch in batches:
                try:
                    await self._send(batch)
                except Exception:
                    _log.exception("a batch of %s failed in the dispatcher", batch.stream.session.name)
                    for one in batch.requests:
                        one.refuse(Status.INTERNAL, FAILED)
        finally:
            ended()

    def _give_back(self, lane: Lane, place: int, generation: int) -> None:
        lane.free = asyncio.get_running_loop().time()
        if generation == self._generation:
            self._ended(place)


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

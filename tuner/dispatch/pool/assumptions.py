"""What a pool's scheduler is told: streams, how long batches take and are under way, how much time there is.

It is what is believed when the scheduler begins, and follows the beliefs where they differ noticeably.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

import numpy as np

from tuner.dispatch.backends.server import WatchedServer
from tuner.dispatch.pool.beliefs import Beliefs, noticeable
from tuner.dispatch.pool.rules import PoolSession
from tuner.dispatch.pool.stream import Stream
from tuner.scheduling.cluster import Delays, SessionSpec

__all__ = ["Assumptions"]

BRIEF = 2.0
"""A batch is brief if it takes at most this many times as long as a single item."""


class Assumptions:
    """What one scheduler assumes.

    Args:
        beliefs: What is known of servers.
        servers: Those that are up, as the scheduler numbers them.
        streams: All of the pool.
        given: The delays of the network; measured if None.
        now: s.
    """

    def __init__(
        self,
        beliefs: Beliefs,
        servers: Sequence[WatchedServer],
        streams: Sequence[Stream],
        given: Delays | None,
        now: float,
    ) -> None:
        self.streams = streams
        """The scheduler's sessions."""
        self._beliefs = beliefs
        self._servers = servers
        self._places = {(one.session.name, one.kind): place for place, one in enumerate(streams)}
        self.tables: Sequence[np.ndarray]
        """How long batches of each stream take on each server, by their items.   # M x (K, B+1) s"""
        self.delays: Delays
        """On the way to the servers and back."""
        self.tables, self.delays = self._believed(given, now)
        self._unsure: Sequence[frozenset[int]]  # by stream: servers of which it is only assumed
        self._note_unsure(now)

    @property
    def specs(self) -> list[SessionSpec]:
        """The streams, as a policy is built from them."""
        return [
            SessionSpec(name=stream.session.name, slo=stream.session.slo, latency=table)
            for stream, table in zip(self.streams, self.tables, strict=True)
        ]

    def place(self, session: str, kind: Hashable) -> int:
        """Return the place of the stream that requests of a kind go with."""
        found = self._places.get((session, kind))
        return self._places[session, None] if found is None else found

    def renew_sessions(self, sessions: Sequence[PoolSession]) -> None:
        """Take other limits and profiles of the same sessions."""
        by_name = {one.name: one for one in sessions}
        self.streams = [replace(one, session=by_name[one.session.name]) for one in self.streams]

    def update(self, given: Delays | None, now: float, *, always: bool = False) -> bool:
        """Follow what is believed now.

        Args:
            given: The delays of the network; measured if None.
            now: s.
            always: Also if it does not differ noticeably.

        Returns:
            Whether the scheduler is to be told.
        """
        self._note_unsure(now)
        tables, delays = self._believed(given, now)
        differs = always or noticeable(self.tables, self.delays, tables, delays)
        if differs:
            self.tables, self.delays = tables, delays
        return differs

    def _believed(self, given: Delays | None, now: float) -> tuple[Sequence[np.ndarray], Delays]:
        delays = given or self._beliefs.delays(self._servers, now)
        return self._beliefs.tables(self._servers, self.streams, now), delays

    def _note_unsure(self, now: float) -> None:
        self._unsure = [self._beliefs.unsure(self._servers, stream, now) for stream in self.streams]

    def time_left(
        self, place: int, items: int, given: float, find_idle: Callable[[], AbstractSet[int]]
    ) -> float:
        """Return how much time the scheduler is told that a request has, s.

        It is more than the client gives where a mere assumption would rule the request out: then it may begin
        within half of its own time, on the quickest server that is idle, for a policy that defers batches
        waits as long as it is told. Not so if an idle server is known to be quick enough.

        Args:
            place: Of its stream.
            items: Of the smallest batch that it may be in.
            given: What the client gives, s.
            find_idle: Returns the servers that have nothing to do.
        """
        unsure, way = self._unsure[place], self._way(items)
        if not unsure or given < way:
            return given
        times, idle = self.tables[place][:, items], find_idle()
        if any(times[number] <= given - way for number in idle - unsure):
            return given
        assumed = [times[number] for number in idle & unsure]
        longest = min(assumed) if assumed else max(times[number] for number in unsure)
        return max(given, given / 2 + way + float(longest))

    def shortest(self, place: int, items: int) -> float:
        """Return in which time a request of a stream would be answered that comes alone, s."""
        items = min(items, self.streams[place].largest)
        return float(self.tables[place][:, items].min()) + self._way(items)

    def brief(self, place: int) -> int:
        """Return the most items of a stream that make a brief batch on every server; see `BRIEF`."""
        times = self.tables[place][:, 1:]
        return int((times <= BRIEF * times[:, :1]).all(axis=0).sum())

    def _way(self, items: int) -> float:
        """Return how long a batch and its answer are under way, s."""
        return self.delays.control + self.delays.data * items + self.delays.response

    def quickest(self, place: int, items: int, now: float) -> float:
        """Return in which time it is not ruled out that a request is answered, s; see `Beliefs.quickest`."""
        return self._beliefs.quickest(self._servers, self.streams[place], items, now)

"""What a pool keeps of a session: limits, how much waits, and which kinds of requests share batches."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence

from tuner.dispatch.backends.server import WatchedServer
from tuner.dispatch.pool.rules import PoolSession
from tuner.dispatch.pool.stream import Stream

__all__ = ["SessionQueue"]

UNKNOWN_LARGEST = 64
"""Largest batch of a model, in items, if neither the file nor the server limits it."""
MOST_KINDS = 12
"""Kinds of requests of a session that have a stream of their own."""
GIVE_WAY = 1.0
"""Least s between two kinds of a session that lose their stream to another: each time a scheduler begins."""
LONGEST_KIND = 10_000
"""Most characters and numbers of a kind that gets a stream: clients choose them, and memory is limited."""


class SessionQueue:
    """A session, its limits, and its requests that wait.

    Args:
        session: The session.
        kinds: Those of its requests that have streams, because an earlier pool had them, the oldest first.
    """

    def __init__(self, session: PoolSession, kinds: Sequence[Hashable]) -> None:
        self.session = session
        self.largest = 0
        """Most items of a request or of a batch."""
        self.takes_items = True
        """Whether its model takes several items."""
        self.items = 0
        """Items that wait."""
        self._used = dict.fromkeys(kinds[-MOST_KINDS:], 0.0)  # when each kind with a stream was last used, s
        self._gave_way = -math.inf  # when the last kind lost its stream to another, s

    @property
    def kinds(self) -> Iterable[Hashable]:
        """The kinds that have streams."""
        return self._used.keys()

    def update_limits(self, up: Sequence[WatchedServer]) -> None:
        """Set the largest batch by the limits of the servers that are up."""
        name = self.session.name
        given = [limits.max_batch for server in up if (limits := server.limits.get(name)) is not None]
        known = [size for size in (*given, self.session.max_batch) if size is not None]
        self.takes_items = 0 not in known
        self.largest = max(min(known, default=UNKNOWN_LARGEST), 1)

    def streams(self, sized: bool) -> list[Stream]:
        """Return the streams: one for requests that go one by one, then one for each kind.

        Args:
            sized: Whether the policy plans a request by its items: it needs the times of all sizes, also of
                requests that go one by one.
        """
        sizes = [(None, self.largest if sized else 1), *((kind, self.largest) for kind in self._used)]
        return [
            Stream(self.session, kind, size, self.largest, self.takes_items, sized) for kind, size in sizes
        ]

    def use(self, kind: Hashable, now: float) -> Hashable:
        """Return the kind of the stream that a request goes with, and note that the stream is in use.

        Args:
            kind: Of the request.
            now: s.
        """
        if kind not in self._used:
            return None
        self._used[kind] = now
        return kind

    def lacks_stream(self, kind: Hashable) -> bool:
        """Return whether requests of a kind could share batches, but go one by one so far."""
        return kind is not None and kind not in self._used

    def add(self, kind: Hashable, now: float) -> bool:
        """Give a kind a stream of its own if there is room, or another kind may lose its stream.

        Args:
            kind: That a server has answered.
            now: s.

        Returns:
            Whether it has a stream now that it did not have before.
        """
        if self.largest == 1 or kind in self._used or _kind_size(kind) > LONGEST_KIND:
            return False
        if len(self._used) >= MOST_KINDS:
            if now - self._gave_way < GIVE_WAY:
                return False
            del self._used[min(self._used, key=self._used.__getitem__)]  # unused for longest
            self._gave_way = now
        self._used[kind] = now
        return True


def _kind_size(kind: Hashable) -> int:
    """Return how many characters and numbers a kind consists of."""
    if isinstance(kind, str):
        return len(kind)
    return sum(map(_kind_size, kind)) if isinstance(kind, tuple) else 1

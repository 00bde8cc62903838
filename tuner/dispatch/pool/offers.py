"""Offers requests that the scheduler has dropped to it again, if their clients give them more time.

They take turns, those of each session apart from others: however many there are, the event loop has no more
to do, and a server that gets free soon finds one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from tuner.dispatch.pool.pending import Pending

__all__ = ["Offers", "why_dropped"]

APART = 1e-3
"""s between two offers of a session."""
ROUNDING = 1e-6
"""s by which a deadline of the SLO may be nearer than the SLO."""


class Offers:
    """The dropped requests of one session.

    Args:
        offer: Offers a request to the scheduler; it may come back at once.
    """

    def __init__(self, offer: Callable[[Pending], None]) -> None:
        self._offer = offer
        self._dropped: deque[tuple[float, Pending]] = deque()  # with when it may be offered, s
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._dropped)

    def add(self, pending: Pending, soonest: float) -> None:
        """Offer a request when its turn comes.

        Args:
            pending: The request.
            soonest: s.
        """
        self._dropped.append((soonest, pending))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_at(soonest, self._next)

    def close(self) -> None:
        """Offer no more."""
        self._dropped.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _next(self) -> None:
        """Offer the first one that somebody still waits for, and come back for the next."""
        loop = asyncio.get_running_loop()
        self._timer = None
        while self._dropped and self._dropped[0][1].over:
            self._dropped.popleft()
        if not self._dropped:
            return
        at = self._dropped[0][0]
        if at <= loop.time():
            _, pending = self._dropped.popleft()
            at = loop.time() + APART
            self._timer = loop.call_at(at, self._next)  # before it comes back
            self._offer(pending)
        else:
            self._timer = loop.call_at(at, self._next)


def why_dropped(pending: Pending, slo: float, shortest: float, *, others: bool) -> str:
    """Return why a policy has dropped a request: for others, or because no time would have been enough.

    Args:
        pending: The request.
        slo: Of its session, s.
        shortest: In which time it would be answered if it came alone, s.
        others: Whether there are any.
    """
    given = pending.due - pending.arrived
    own = given < slo - ROUNDING
    limit = f"the {given * 1e3:.4g} ms that its client gives" if own else f"the SLO of {slo * 1e3:g} ms"
    crowded = others and shortest <= min(slo, given)
    why = "other requests came first" if crowded else "no backend is expected to be quick enough"
    return f"could not be executed within {limit}: {why}"

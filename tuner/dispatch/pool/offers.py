"""Offers requests that the scheduler has dropped to it again, if their clients give them more time.

They are late anyway, so they hold up no others: they are offered while a server has nothing to do, a few at a
time, and the next ones once those were sent. As long as the servers are overloaded, they wait for the end of
that or of their clients' patience. Otherwise, after a burst, each late request would make another one late.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from itertools import islice

from tuner.dispatch.pool.pending import Pending

__all__ = ["APART", "Offers", "why_dropped"]

APART = 1e-3
"""s between two looks whether a server has nothing to do."""
ROUNDING = 1e-6
"""s by which a deadline of the SLO may be nearer than the SLO."""


class Offers:
    """The dropped requests of a pool.

    Args:
        offer: Offers a request to the scheduler; it may come back at once.
        room: Whether a server has nothing to do.
        together: How many items may be offered with a request, itself included: more would occupy a server
            for long.
    """

    def __init__(
        self,
        offer: Callable[[Pending], None],
        room: Callable[[], bool],
        together: Callable[[Pending], int],
    ) -> None:
        self._offer = offer
        self._room = room
        self._together = together
        self._dropped: defaultdict[str, OrderedDict[Pending, float]] = defaultdict(OrderedDict)
        """By session: when each may be offered, s."""
        self._items = Counter[str]()  # by session
        self._offered: dict[str, list[Pending]] = {}  # last, by session
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return sum(map(len, self._dropped.values()))

    def items(self, session: str) -> int:
        """Return how many items of a session wait here."""
        return self._items[session]

    def add(self, pending: Pending, soonest: float, most: float) -> bool:
        """Offer a request when its turn comes.

        Args:
            pending: The request.
            soonest: s.
            most: Items of its session that may wait here.

        Returns:
            False if it is one too many.
        """
        if self._items[pending.session] + pending.items > most:
            return False
        self._items[pending.session] += pending.items
        self._dropped[pending.session][pending] = soonest
        if self._timer is None or soonest < self._timer.when():
            self._stop()
            self._timer = asyncio.get_running_loop().call_at(soonest, self._next)
        return True

    def remove(self, pending: Pending) -> None:
        """Offer a request no more, if it is here: it is over, or goes elsewhere."""
        if self._dropped[pending.session].pop(pending, None) is not None:
            self._items[pending.session] -= pending.items

    def take_of(self, sessions: Iterable[str]) -> list[Pending]:
        """Remove and return the requests of some sessions."""
        found = [one for session in sessions for one in self._dropped[session]]
        for one in found:
            self.remove(one)
        return found

    def close(self) -> None:
        """Offer no more."""
        self._dropped.clear()
        self._stop()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _next(self) -> None:
        """Offer what has waited longest if there is room, and come back for the next."""
        loop = asyncio.get_running_loop()
        self._timer, now = None, loop.time()
        if not any(self._dropped.values()):
            return
        turns = {
            next(iter(ones.values())): session
            for session, ones in self._dropped.items()
            if ones and not self._under_way(session)
        }
        soonest = min(turns, default=now)
        self._timer = loop.call_at(max(soonest, now + APART), self._next)  # before any comes back
        if not turns or soonest > now or not self._room():
            return
        session = turns[soonest]
        offered = self._offered[session] = self._first(self._dropped[session], now)
        for one in offered:
            self.remove(one)
        for one in offered:
            self._offer(one)

    def _under_way(self, session: str) -> bool:
        """Return whether what was offered last of a session was not sent yet."""
        return any(one.queued and not one.over for one in self._offered.get(session, ()))

    def _first(self, waiting: OrderedDict[Pending, float], now: float) -> list[Pending]:
        """Return the first requests of a session that may go together: at least one."""
        first = next(iter(waiting))
        found: list[Pending] = []
        items = self._together(first)
        for one, soonest in islice(waiting.items(), max(items, 1)):
            items -= one.items
            if found and (items < 0 or soonest > now or one.kind != first.kind):
                break
            found.append(one)
        return found


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

"""Whether a server is to blame for what it refuses: its model may be broken there alone.

A refusal may be the request's own fault, so refusals alone take no server out. After some, one after the
other, another server is asked. If that one answers again and again, while this one has answered nothing, this
one is an outlier: it is out for a while, and for longer if it is one again soon after it has come back. Then
the first refusal that another server disproves is enough, until it has answered something.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum, auto

__all__ = ["SHORTEST_OUT", "Came", "Outlier"]

SUSPICIOUS = 3
"""Refusals, one after the other, after which another server is asked."""
MOST_APART = 100
"""Most refusals between two questions to other servers, where these refuse the same, or there is none:
clients may go on sending what nobody can answer."""
SHORTEST_OUT, LONGEST_OUT = 10.0, 300.0
"""s that an outlier is out: at first, and at most."""


class Came(Enum):
    """What came of asking another server."""

    ANSWERED = auto()
    REFUSED = auto()
    NOTHING = auto()
    """It said nothing: it was lost, or too busy until the deadline, or the client has gone."""
    BUSY = auto()
    """It was not asked: each one waits itself for what another server says, maybe for this one."""
    NOBODY = auto()
    """There was none to ask of which less is refused."""

    @property
    def asked(self) -> bool:
        """Whether one was asked."""
        return self not in {Came.BUSY, Came.NOBODY}


@dataclass(slots=True)
class _Refusals:
    """Of a session's requests, since the server has answered one."""

    count: int = 0
    ask_at: int = SUSPICIOUS
    """The count at which another server is asked next."""
    disproved: int = 0
    """How often another server has answered."""


class Outlier:
    """What speaks against a server. All times are s on the loop's clock."""

    def __init__(self) -> None:
        self.until = -math.inf
        """When it comes back, or came back last, after it was an outlier."""
        self.out = 0.0
        """How long it was out last, s."""
        self.early = -math.inf
        """When it was brought back before its time last."""
        self._refusals: dict[str, _Refusals] = {}

    def answered(self, session: str) -> None:
        """The server has answered: what it refused before does not count any more."""
        self._refusals.pop(session, None)

    def refused(self, session: str) -> None:
        """The server has refused a request."""
        self._refusals.setdefault(session, _Refusals()).count += 1

    def suspected(self, session: str) -> bool:
        """Return whether it refuses so much that its refusals say nothing about another server."""
        found = self._refusals.get(session)
        return found is not None and (found.count >= SUSPICIOUS or found.disproved > 0)

    def questionable(self, session: str) -> bool:
        """Return whether another server should be asked now."""
        found = self._refusals.get(session)
        return found is not None and found.count >= found.ask_at

    def compared(self, session: str, now: float, came: Came, enough: int) -> bool:
        """Another server was asked, or there was none.

        Args:
            session: Whose request it was.
            now: s.
            came: What came of that.
            enough: How often another one must answer.

        Returns:
            Whether this server is an outlier; then it is out until :attr:`until`.
        """
        found = self._refusals.get(session)
        if found is None:  # it has answered meanwhile
            return False
        in_vain = came in {Came.REFUSED, Came.NOBODY}
        found.ask_at = found.count + (min(found.count, MOST_APART) if in_vain else 1)
        found.disproved += came is Came.ANSWERED
        if found.disproved < enough:
            return False
        again = now - self.until < self.out
        self.out = min(2 * self.out, LONGEST_OUT) if again else SHORTEST_OUT
        self.until = now + self.out
        self._refusals[session] = _Refusals(ask_at=1, disproved=enough - 1)
        return True

"""Changes of a server by somebody else: counts them, and says when another daemon or target may make them."""

from __future__ import annotations

from collections.abc import Callable

from tuner.control.decide.memory import HOUR

__all__ = ["ForeignChanges"]


class ForeignChanges:
    """What others have changed on a server.

    Life: :meth:`noticed` with each of their changes; :meth:`taken` by whoever counts them.

    Args:
        now: The time, s.
        notify: Receives a sentence about each.
    """

    def __init__(self, *, now: Callable[[], float], notify: Callable[[str], None]) -> None:
        self._now = now
        self._notify = notify
        self._times: list[float] = []  # of those within the last hour, s
        self._untaken = 0

    def noticed(self, what: str, then: str) -> None:
        """Count a change, and tell of it.

        Args:
            what: What somebody else has set, in words.
            then: What follows.
        """
        now = self._now()
        self._times = [*(time for time in self._times if time > now - HOUR), now]
        self._untaken += 1
        sentence, times = f"somebody else set {what}; {then}", len(self._times)
        # Two daemons, or two targets by two names of one server, take each other's changes for such.
        if times > 1:
            sentence += f"; {times} times within an hour: "
            sentence += "perhaps a second daemon, or another target, tunes this model"
        self._notify(sentence)

    def taken(self) -> int:
        """Return how many were noticed since this was last asked."""
        count, self._untaken = self._untaken, 0
        return count

"""The entries of a scheduler's queues: numbers to the scheduler, requests to the pool."""

from __future__ import annotations

from collections.abc import Container, Iterable

from tuner.dispatch.pool.pending import Pending, still_waiting

__all__ = ["Entries"]


class Entries:
    """Which request each entry stands for.

    A request may have several. Those that are left when it is sent or ends are ignored when their turn comes.
    """

    def __init__(self) -> None:
        self._requests: dict[int, Pending] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, pending: Pending) -> int:
        """Return the number of a new entry of a request."""
        number, self._next = self._next, self._next + 1
        self._requests[number] = pending
        return number

    def take(self, numbers: Iterable[int]) -> list[Pending]:
        """Remove some entries; return their requests that still wait, each once."""
        found = [one for number in numbers if (one := self._requests.pop(number, None)) is not None]
        return still_waiting(found)

    def take_all(self) -> list[Pending]:
        """Remove all entries; return their requests that still wait, each once."""
        return self.take(list(self._requests))

    def take_of(self, sessions: Container[str]) -> list[Pending]:
        """Remove the entries of some sessions; return their requests that still wait, each once."""
        return self.take([number for number, one in self._requests.items() if one.session in sessions])

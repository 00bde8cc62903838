"""The entries of a scheduler's queues: numbers to the scheduler, requests to the pool."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from tuner.dispatch.pool.pending import Pending, still_waiting

__all__ = ["Entries"]


class Entries:
    """Which request each entry stands for.

    A request may have several. Those that are left when it is sent, dropped or ends are ignored when their
    turn comes, also if it waits again by then: it has got others.
    """

    def __init__(self) -> None:
        self._requests: dict[int, Pending] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, pending: Pending, count: int) -> Sequence[int]:
        """Return the numbers of so many new entries of a request; those from before count no more."""
        first = pending.first_entry = self._next
        self._next += count
        numbers = range(first, self._next)
        for number in numbers:
            self._requests[number] = pending
        return numbers

    def take(self, numbers: Iterable[int]) -> list[Pending]:
        """Remove some entries; return their requests that still wait, each once."""
        found = [
            one
            for number in numbers
            if (one := self._requests.pop(number, None)) is not None and number >= one.first_entry
        ]
        return still_waiting(found)

    def take_all(self) -> list[Pending]:
        """Remove all entries; return their requests that still wait, each once."""
        return self.take(list(self._requests))

    def take_of(self, sessions: Container[str]) -> list[Pending]:
        """Remove the entries of some sessions; return their requests that still wait, each once."""
        return self.take([number for number, one in self._requests.items() if one.session in sessions])

"""The last requests of a load generator: when each was sent, and how and when it ended."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tuner.errors import InvalidInput
from tuner.profiler.load.wire import DONE, OK, SENT, STATUS, TICK
from tuner.profiler.source import ClientSample

__all__ = ["LoadLog", "LoadTotals"]

CAPACITY = 1 << 18
"""Requests remembered one by one; a power of two."""
PENDING = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadTotals:
    """How all requests ended: ``sent == answered + failed + outstanding``."""

    sent: int
    answered: int
    failed: int
    """Refused, failed or lost."""
    outstanding: int
    """Neither answered nor lost yet."""
    reasons: Mapping[str, int]
    """Failures by gRPC status. ``deadline_exceeded`` is no answer within the timeout, ``cancelled`` no answer
    before the generator stopped, and ``not_sent`` that too many requests were open already."""


class LoadLog:
    """A ring of the last requests. One thread fills it, others read it.

    Args:
        capacity: Requests remembered; a power of two.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._mask = capacity - 1
        self._intended = np.zeros(capacity)  # (capacity,) s, by request number modulo capacity
        self._sent = np.zeros(capacity)  # (capacity,) s
        self._done = np.zeros(capacity)  # (capacity,) s
        self._status = np.full(capacity, PENDING, np.int32)
        self._count = 0
        self._ended = np.zeros(len(STATUS), np.int64)
        self._reported = -np.inf
        self._changed = threading.Condition()
        self.closed = False

    def add(self, records: np.ndarray) -> None:
        """Take in records of the wire format, in their order."""
        sent, done, tick = (records[records["kind"] == kind] for kind in (SENT, DONE, TICK))
        with self._changed:
            if sent.size:
                at = sent["number"] & self._mask
                self._intended[at], self._sent[at] = sent["first"], sent["second"]
                self._status[at] = PENDING
                self._count = int(sent["number"][-1]) + 1
            if done.size:
                self._ended += np.bincount(done["status"], minlength=len(STATUS))
                done = done[done["number"] >= self._oldest()]
                at = done["number"] & self._mask
                self._done[at], self._status[at] = done["second"], done["status"]
            if tick.size:
                self._reported = float(tick["first"][-1])
            self._changed.notify_all()

    def close(self) -> None:
        """End the log: nothing more will come. Every waiting thread goes on."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def wait_reported(self, end: float, patience: float) -> bool:
        """Wait until all requests intended before ``end`` are known; return whether they are."""
        with self._changed:
            self._changed.wait_for(lambda: self.closed or self._reported >= end, patience)
            return self._reported >= end

    def wait_answered(self, start: float, end: float, patience: float) -> None:
        """Wait until no request intended in ``[start, end)`` is outstanding."""
        with self._changed:
            self._changed.wait_for(
                lambda: self.closed or not (self._status[self._slots(start, end)] == PENDING).any(), patience
            )

    def sample(self, start: float, end: float) -> ClientSample:
        """Return the requests intended in ``[start, end)`` as they are known now.

        Raises:
            InvalidInput: Some of them are no longer remembered.
        """
        with self._changed:
            at = self._slots(start, end)
            if self._oldest() > 0 and start < self._intended[self._oldest() & self._mask]:
                raise InvalidInput(
                    "window", f"more than {self._mask + 1} requests were sent since", "shorten it"
                )
            intended, status = self._intended[at], self._status[at]
            return ClientSample(
                intended=intended,
                latency=np.where(status == OK, self._done[at] - intended, np.nan),
                failed=int((status > OK).sum()),
                lateness=self._sent[at] - intended,
                answered=self.answered(start, end),
            )

    def answered(self, start: float, end: float) -> np.ndarray:
        """Return the latencies of the remembered requests that were answered in ``[start, end)``, s."""
        with self._changed:
            slots = np.arange(self._oldest(), self._count) & self._mask
            slots = slots[
                (self._status[slots] == OK) & (self._done[slots] >= start) & (self._done[slots] < end)
            ]
            return np.asarray(self._done[slots] - self._intended[slots])

    def totals(self) -> LoadTotals:
        """Return how all requests so far ended."""
        with self._changed:
            ended = self._ended.copy()
            count = self._count
        failed = int(ended[OK + 1 :].sum())
        return LoadTotals(
            sent=count,
            answered=int(ended[OK]),
            failed=failed,
            outstanding=count - int(ended[OK]) - failed,
            reasons={name: int(n) for name, n in zip(STATUS, ended, strict=True) if n and name != STATUS[OK]},
        )

    def _oldest(self) -> int:
        return max(self._count - self._mask - 1, 0)

    def _slots(self, start: float, end: float) -> np.ndarray:
        """Return the places of the requests intended in ``[start, end)``."""
        slots = np.arange(self._oldest(), self._count) & self._mask
        first, last = np.searchsorted(self._intended[slots], [start, end], side="left")
        return np.asarray(slots[first:last])

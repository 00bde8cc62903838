"""Drive any policy through virtual time in plain Python, in a reality that is as the policy believes."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from tuner.scheduling import arrive, finish, grow, wake
from tuner.scheduling.vocabulary import DISPATCH, FULL, NEVER

__all__ = ["ARRIVE", "DROPPED", "FINISH", "SENT", "WAKE", "Entry", "drive", "read_commands"]

# What an entry of the log tells; events at one instant come in this order.
FINISH, ARRIVE, WAKE, SENT, DROPPED = "finish", "arrive", "wake", "dispatch", "drop"
_ORDER = {FINISH: 0, ARRIVE: 1, WAKE: 2}


class Entry(NamedTuple):
    """One event that the policy was told of, or one command that it gave."""

    kind: str
    time: float  # s
    session: int = -1
    queue: int = -1
    numbers: tuple[int, ...] = ()
    accelerator: int = -1
    start: float = float("nan")  # s
    finish: float = float("nan")  # s


def drive(
    policy: Any,
    arrivals: Iterable[tuple[float, int] | tuple[float, int, int]],
    until: float | None = None,
    *,
    slowness: Callable[[int], float] = lambda batch: 1.0,
    events: int = 1_000_000,
) -> list[Entry]:
    """Return everything that happened, events and commands, in order.

    Args:
        policy: Its state at time 0; modified in place, except that full rings are replaced by larger ones.
        arrivals: Time in s, session and, if not 0, source. Requests are numbered in this order.
        until: s, stop before later events; when nothing is waiting or executing if None.
        slowness: Factor on the latency of the n-th batch, so that reality differs from belief.
        events: Fail after so many.
    """
    run = _Run(policy, slowness)
    pending = deque((float(item[0]), int(item[1]), int((*item, 0)[2])) for item in arrivals)
    for _ in range(events):
        coming = [(max(float(run.policy[0].board[0].wake_at), run.now), _ORDER[WAKE])]
        coming += [(pending[0][0], _ORDER[ARRIVE])] if pending else []
        coming += [(run.ends[0][0], _ORDER[FINISH])] if run.ends else []
        time, kind = min(coming)
        if time == NEVER or (until is not None and time > until):
            return run.log
        if kind == _ORDER[FINISH]:
            run.finish(time, heapq.heappop(run.ends)[2])
        elif kind == _ORDER[ARRIVE]:
            run.arrive(time, *pending.popleft()[1:])
        else:
            run.wake(time)
    raise AssertionError(f"still busy after {events} events")


class _Run:
    """The state of one run: the policy, the clock, what executes and what was noted."""

    def __init__(self, policy: Any, slowness: Callable[[int], float]) -> None:
        self.policy = policy
        self.slowness = slowness
        self.now = 0.0
        self.arrived = 0
        self.sent = 0
        self.log: list[Entry] = []
        self.ends: list[tuple[float, int, int]] = []  # heap: time, count, accelerator
        self.free_at = [0.0] * len(policy[0].accelerators)

    def arrive(self, time: float, session: int, source: int) -> None:
        self.now = time
        number = self.arrived
        self.log.append(Entry(ARRIVE, time, session, numbers=(number,)))
        while arrive(self.policy, session, source, number, time) == FULL:
            self.policy = grow(self.policy)
        self.arrived += 1
        self._carry_out()

    def finish(self, time: float, accelerator: int) -> None:
        self.now = time
        self.log.append(Entry(FINISH, time, accelerator=accelerator))
        finish(self.policy, accelerator, time)
        self._carry_out()

    def wake(self, time: float) -> None:
        self.now = time
        self.log.append(Entry(WAKE, time))
        wake(self.policy, time)
        self._carry_out()

    def _carry_out(self) -> None:
        for entry in read_commands(self.policy):
            self.log.append(entry)
            if entry.kind != SENT:
                continue
            latency = (entry.finish - entry.start) * self.slowness(self.sent)
            start = max(entry.start, self.free_at[entry.accelerator])
            exact = self.slowness(self.sent) == 1.0 and start == entry.start
            end = entry.finish if exact else start + latency
            self.free_at[entry.accelerator] = end
            heapq.heappush(self.ends, (end, self.sent, entry.accelerator))
            self.sent += 1


def read_commands(policy: Any) -> list[Entry]:
    """Return the commands of the policy's last event."""
    cluster = policy[0]
    mask = cluster.waiting.shape[1] - 1
    found = []
    for command in cluster.commands[: int(cluster.board[0].commands)]:
        positions = range(int(command.first), int(command.first + command.count))
        numbers = tuple(int(cluster.waiting[int(command.queue), p & mask].number) for p in positions)
        found.append(
            Entry(
                SENT if command.kind == DISPATCH else DROPPED,
                float(cluster.board[0].now),
                int(command.session),
                int(command.queue),
                numbers,
                int(command.accelerator),
                float(command.start),
                float(command.finish),
            )
        )
    return found

"""A plain driver of scheduling policies, without the engine: virtual time, and a trace of what happened."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tuner.scheduling.cluster import grow
from tuner.scheduling.policy import arrive, finish, wake
from tuner.scheduling.vocabulary import DISPATCH, FULL, NEVER, OK, REQUEST, Cluster, records

__all__ = [
    "Command",
    "PolicyRun",
    "PolicyStep",
    "answers_again",
    "believed",
    "drive",
    "noted",
    "tell",
    "with_rings",
]

CALLS: dict[str, Callable[..., int]] = {"arrive": arrive, "finish": finish, "wake": wake}


class Command(NamedTuple):
    """A command of a policy; start and finish are 0 for DROP."""

    kind: int
    session: int
    queue: int
    first: int
    numbers: tuple[int, ...]
    accelerator: int
    start: float
    finish: float
    items: int = 0
    """The size of a batch."""


class PolicyStep(NamedTuple):
    """An event, and how the policy answered it."""

    kind: str
    """``arrive``, ``finish`` or ``wake``."""
    subject: tuple[int, ...]
    """Session, source and number; or the accelerator; or nothing."""
    now: float
    commands: tuple[Command, ...]
    wake_at: float
    items: int = 1
    """The size of the request of ``arrive``."""


@dataclass(kw_only=True)
class PolicyRun:
    """All that happened in a run."""

    policy: Any
    """The state at the end."""
    events: list[PolicyStep] = field(default_factory=list)
    ended: dict[int, float] = field(default_factory=dict)
    """When the execution of a request ended, s."""

    @property
    def commands(self) -> list[tuple[float, Command]]:
        """Every command with the time it was given, in order."""
        return [(event.now, command) for event in self.events for command in event.commands]

    @property
    def batches(self) -> list[tuple[float, Command]]:
        """Every batch with the time it was sent, in order."""
        return [pair for pair in self.commands if pair[1].kind == DISPATCH]

    @property
    def dropped(self) -> dict[int, float]:
        """When a request was refused, s."""
        drops = [(now, command) for now, command in self.commands if command.kind != DISPATCH]
        return {number: now for now, command in drops for number in command.numbers}


def drive(
    policy: Any,
    arrivals: Sequence[tuple[float, int, int]],
    stretch: Sequence[float] = (1.0,),
    until: float = NEVER,
    items: Sequence[int] = (),
) -> PolicyRun:
    """Run a policy until all is answered: the same rules as the engine's, slow and plain.

    Args:
        policy: Its state at time 0; modified in place.
        arrivals: Per request its time (s), session and source, in order of time.
        stretch: By how much the n-th batch takes longer than the policy believes, in turn.
        until: s; nothing later happens.
        items: Sizes of the requests; all 1 if empty.

    Raises:
        AssertionError: It does not come to rest.
    """
    trace = PolicyRun(policy=policy)
    busy = policy[0].accelerators["outstanding"] > 0  # at time 0
    free: list[float] = policy[0].accelerators["free_at"].tolist()
    lines = [deque([end] if works else ()) for end, works in zip(free, busy, strict=True)]  # ends of batches
    now, come, sent = 0.0, 0, 0
    for _ in range(1000 + 20 * len(arrivals)):
        end, accelerator = min(((line[0], a) for a, line in enumerate(lines) if line), default=(NEVER, -1))
        arrival = arrivals[come][0] if come < len(arrivals) else NEVER
        alarm = float(trace.policy[0].board[0].wake_at)
        if min(end, arrival, alarm) == NEVER or min(end, arrival, alarm) > until:
            return trace
        now = max(now, min(end, arrival, alarm))
        if end <= now:
            lines[accelerator].popleft()
            event = tell(trace, "finish", (accelerator,), now)
        elif arrival <= now:
            event = tell(trace, "arrive", (*arrivals[come][1:], come), now, items[come] if items else 1)
            come += 1
        else:
            event = tell(trace, "wake", (), now)
        for command in event.commands:
            if command.kind == DISPATCH:
                start = max(command.start, free[command.accelerator])
                took = believed(trace.policy[0], command) * stretch[sent % len(stretch)]
                free[command.accelerator] = start + took
                lines[command.accelerator].append(start + took)
                trace.ended |= dict.fromkeys(command.numbers, start + took)
                sent += 1
    raise AssertionError(f"still busy at {now=} after {len(trace.events)} events")


def tell(trace: PolicyRun, kind: str, subject: tuple[int, ...], now: float, items: int = 1) -> PolicyStep:
    """Send the policy an event, growing its rings where needed; return it with the answer."""
    status = FULL
    while status == FULL:
        trace.policy[0].board[0].items = items
        status = CALLS[kind](trace.policy, *subject, now)
        if status == FULL:
            trace.policy = grow(trace.policy)
    assert status == OK, f"{kind} answers {status=}"
    alarm = float(trace.policy[0].board[0].wake_at)
    event = PolicyStep(kind, subject, now, noted(trace.policy[0]), alarm, items)
    trace.events.append(event)
    return event


def noted(cluster: Cluster) -> tuple[Command, ...]:
    """Read the commands of the last event, with the requests they are about."""
    commands = []
    for kind, session, queue, first, count, items, accelerator, start, end in cluster.commands[
        : cluster.board[0].commands
    ].tolist():
        slots = np.arange(first, first + count) & (cluster.waiting.shape[1] - 1)
        numbers = tuple(cluster.waiting[queue]["number"][slots].tolist())
        begin, done = (start, end) if kind == DISPATCH else (0.0, 0.0)
        commands.append(Command(kind, session, queue, first, numbers, accelerator, begin, done, items))
    return tuple(commands)


def believed(cluster: Cluster, command: Command) -> float:
    """Return how long the policy believes that a batch takes, s."""
    kind, largest = cluster.accelerators["kind"][command.accelerator], cluster.latency.shape[2] - 1
    assert 1 <= command.items <= largest, f"a batch of {command.items}, {largest=}"
    return float(cluster.latency[kind, command.session, command.items])


def answers_again(policy: Any, events: Sequence[PolicyStep]) -> list[PolicyStep]:
    """Send a policy at time 0 the events of another; return them with its own answers."""
    trace = PolicyRun(policy=policy)
    return [tell(trace, event.kind, event.subject, event.now, event.items) for event in events]


def with_rings(policy: Any, length: int) -> Any:
    """Return a policy at time 0 with rings of another length, a power of 2."""
    cluster = policy[0]
    rings = records((cluster.waiting.shape[0], length), REQUEST)
    return policy._replace(cluster=cluster._replace(waiting=rings))

"""The event log: the events that a policy received and the commands that it answered with; and their replay.

The simulator and the live :class:`~tuner.scheduling.scheduler.Scheduler` write the same log, for batching and
for distribution policies alike. A policy has no clock and no randomness, so that a fresh one must answer the
same events with the same commands; :func:`replay` checks that it does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tuner.errors import InvalidInput
from tuner.scheduling.cluster import grow
from tuner.scheduling.policy import arrive, finish, wake
from tuner.scheduling.vocabulary import DISPATCH, FULL, Cluster

__all__ = ["ARRIVE", "ENTRY", "FINISH", "REFUSE", "SEND", "WAKE", "Difference", "EventLog", "replay"]

# Kinds of entry: events, which a policy receives, and commands, which it answers with.
ARRIVE = 0
FINISH = 1
WAKE = 2
SEND = 3
REFUSE = 4

LIMIT = 1_000_000
"""Entries that a log keeps; about 100 MB."""

ENTRY = np.dtype(
    [
        ("kind", "i8"),
        ("time", "f8"),  # s
        ("session", "i8"),  # of ARRIVE and commands
        ("source", "i8"),  # of ARRIVE
        ("number", "i8"),  # of ARRIVE: the request's name; of commands: the name of the oldest request
        ("items", "i8"),  # of ARRIVE: how large it is; of SEND: the batch's size; of FINISH: 1 if it is void
        ("accelerator", "i8"),  # of FINISH and SEND
        ("queue", "i8"),  # of commands
        ("first", "i8"),  # of commands: position in the queue's ring
        ("count", "i8"),  # of commands: requests
        ("start", "f8"),  # s, of SEND: as commanded; of ARRIVE: how much nearer its deadline is than the SLO
        ("finish", "f8"),  # s, of SEND: as the policy expects it
        ("started", "f8"),  # s, of SEND: in truth
        ("ended", "f8"),  # s, of SEND: in truth; NaN in the log of a live scheduler
    ],
    align=True,
)
COMMANDED = ("session", "queue", "first", "count", "items", "accelerator", "start", "finish")
"""The fields of an entry that the policy chose."""


class EventLog:
    """Records a run from its beginning; stops at a limit, so that its memory is bounded.

    Give it to a :class:`~tuner.cluster.simulation.Simulation` or a live
    :class:`~tuner.scheduling.scheduler.Scheduler`, then read :attr:`entries`, an array that can be stored
    without objects. :meth:`of` makes a log of stored entries.

    Args:
        limit: Entries to keep, about 100 bytes each; one per event and one per command.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self.complete = True
        """Whether everything is in it; if not, the first ``limit`` entries are."""
        self._pieces: list[np.ndarray] = []
        self._kept = 0

    @classmethod
    def of(cls, entries: np.ndarray) -> EventLog:
        """Return a log that holds these entries.   # (n,) ENTRY."""
        log = cls(entries.size)
        log.take(entries)
        return log

    def stop(self) -> None:
        """Keep nothing more: something is missing from here on."""
        self.complete = False
        self.limit = self._kept

    def take(self, entries: np.ndarray) -> None:
        """Append a copy of entries as far as there is room.   # (n,) ENTRY."""
        room = self.limit - self._kept
        if entries.size > room:
            self.complete = False
        if entries.size and room:
            self._pieces.append(np.array(entries[:room]))
            self._kept += self._pieces[-1].size

    def note(  # noqa: PLR0917 - as many as an event has
        self,
        cluster: Cluster,
        kind: int,
        which: int = -1,
        source: int = 0,
        number: int = -1,
        items: int = 0,
        early: float = 0.0,
    ) -> None:
        """Append the event that a policy has just handled, and the commands that it answered with.

        Args:
            cluster: The policy's, after the event.
            kind: ARRIVE, FINISH or WAKE.
            which: The session of ARRIVE, the accelerator of FINISH.
            source: Of ARRIVE, the frontend.
            number: Of ARRIVE, the request's name.
            items: Of ARRIVE, the size of the request; of FINISH, 1 if the batch was not executed.
            early: Of ARRIVE, how much nearer its deadline is than its session's SLO, s.
        """
        commands = np.asarray(cluster.commands[: cluster.board[0].commands])
        rows = np.zeros(1 + commands.size, ENTRY)
        rows["time"] = cluster.board[0].now
        for name in ("start", "finish", "started", "ended"):
            rows[name] = np.nan
        rows[0]["kind"], rows[0]["source"], rows[0]["number"], rows[0]["items"] = kind, source, number, items
        rows[0]["session"] = which if kind == ARRIVE else -1
        if early > 0:
            rows[0]["start"] = early
        rows[0]["accelerator"] = which if kind == FINISH else -1
        rows[0]["queue"] = rows[0]["first"] = -1
        rows["kind"][1:] = np.where(commands["kind"] == DISPATCH, SEND, REFUSE)
        slots = commands["first"] & (cluster.waiting.shape[1] - 1)
        rows["number"][1:] = np.asarray(cluster.waiting)["number"][commands["queue"], slots]
        for name in COMMANDED:
            rows[name][1:] = commands[name]
        self.take(rows)

    @property
    def size(self) -> int:
        """How many entries are kept."""
        return self._kept

    @property
    def entries(self) -> np.ndarray:
        """Everything kept, in the order it happened.   # (n,) ENTRY."""
        if len(self._pieces) != 1:
            self._pieces = [np.concatenate([np.empty(0, ENTRY), *self._pieces])]
        return self._pieces[0]


class Difference(NamedTuple):
    """Where a replay first went another way than the log."""

    place: int
    """Of the entry in the log; beyond its end if the policy commanded more."""
    logged: dict[str, float] | None
    """The fields of the command in the log; None if there the policy gave none."""
    given: dict[str, float] | None
    """The fields of the command that the policy gave now; None if it gave none."""


def replay(
    log: EventLog, policy: Any, changes: Sequence[tuple[int, Callable[[Any], None]]] = ()
) -> Difference | None:
    """Send the events of a log to a policy and compare its commands, field by field and bit by bit.

    Args:
        log: Of a simulation or a live scheduler, or the beginning of one.
        policy: Its policy as it was at the beginning; modified in place.
        changes: What was done to the policy between events: before which entry, and the function that did it.

    Returns:
        None if the commands are identical, else the first difference.

    Raises:
        InvalidInput: The log has an event of a session, an accelerator or a size that the policy's cluster
            has not, or ends a batch where none is. Compiled code would write it anywhere.
    """
    entries = log.entries
    _check_cluster(entries, policy[0])
    index, made = 0, 0
    while index < entries.size:
        while made < len(changes) and changes[made][0] <= index:
            changes[made][1](policy)
            made += 1
        policy = _send(policy, entries[index])
        index += 1
        given = [_fields(command) for command in policy[0].commands[: policy[0].board[0].commands]]
        logged: list[dict[str, float]] = []
        while index + len(logged) < entries.size and entries[index + len(logged)]["kind"] >= SEND:
            logged.append(_fields(entries[index + len(logged)]))
        if not log.complete and index + len(logged) == entries.size:
            given = given[: len(logged)]  # the log ends in the middle of this event
        for place in range(max(len(given), len(logged))):
            old = logged[place] if place < len(logged) else None
            new = given[place] if place < len(given) else None
            if old is None or new is None or not _same(old, new):
                return Difference(index + place, old, new)
        index += len(logged)
    return None


def _check_cluster(entries: np.ndarray, cluster: Cluster) -> None:
    """Check that a cluster has whatever the events of a log are about."""
    arrivals, ends = entries[entries["kind"] == ARRIVE], entries[entries["kind"] == FINISH]
    for what, met, most in (
        ("session", arrivals["session"], cluster.sessions.size - 1),
        ("accelerator", ends["accelerator"], cluster.accelerators.size - 1),
        ("size", arrivals["items"], cluster.latency.shape[2] - 1),
    ):
        if met.size and not 0 <= met.min() <= met.max() <= most:
            wrong = met.min() if met.min() < 0 else met.max()
            problem = f"it has an event of {what} {wrong}, but the policy's cluster none above {most}"
            raise InvalidInput("log", problem, "give a policy of the cluster that was logged")


def _send(policy: Any, event: Any) -> Any:
    """Send one event to a policy; return the policy, with larger rings if it needed them."""
    now = float(event["time"])
    while True:
        if event["kind"] == ARRIVE:
            policy[0].board[0].items = event["items"]
            policy[0].board[0].early = np.nan_to_num(event["start"])  # NaN: its session's SLO is its deadline
            status = arrive(policy, int(event["session"]), int(event["source"]), int(event["number"]), now)
        elif event["kind"] == FINISH:
            if policy[0].accelerators["outstanding"][event["accelerator"]] < 1:
                problem = f"it ends a batch of accelerator {event['accelerator']}, which has none"
                raise InvalidInput("log", problem, "give a policy of the cluster that was logged")
            policy[0].board[0].void = event["items"]
            status = finish(policy, int(event["accelerator"]), now)
        else:
            status = wake(policy, now)
        if status != FULL:
            return policy
        policy = grow(policy)


def _fields(record: Any) -> dict[str, float]:
    """Return what a policy decides in a command, from a command or an entry."""
    return {name: record[name].item() for name in COMMANDED}


def _same(one: dict[str, float], other: dict[str, float]) -> bool:
    return all(
        one[name] == other[name] or (one[name] != one[name] and other[name] != other[name]) for name in one
    )

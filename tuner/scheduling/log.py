"""The event log of a simulation: what the policy was told and commanded; replay of it; a Chrome trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tuner._jit import njit_flat
from tuner.scheduling.cluster import grow
from tuner.scheduling.policy import arrive, finish, wake
from tuner.scheduling.vocabulary import DISPATCH, FULL, Cluster

if TYPE_CHECKING:
    from tuner.cluster.engine import Execution

__all__ = ["Difference", "EventLog", "chrome_trace", "replay"]

# Kinds of entry: events are told to the policy, commands are what it answers.
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
        ("items", "i8"),  # of ARRIVE: how large it is; of SEND: the size of the batch
        ("accelerator", "i8"),  # of FINISH and SEND
        ("queue", "i8"),  # of commands
        ("first", "i8"),  # of commands: position in the queue's ring
        ("count", "i8"),  # of commands: requests
        ("start", "f8"),  # s, of SEND: as commanded
        ("finish", "f8"),  # s, of SEND: as the policy expects it
        ("started", "f8"),  # s, of SEND: in truth
        ("ended", "f8"),  # s, of SEND: in truth
    ],
    align=True,
)
COMMANDED = ("session", "queue", "first", "count", "items", "accelerator", "start", "finish")
"""The fields of an entry that are the policy's own."""


@njit_flat
def note_event(execution: Execution, kind: int, which: int, source: int, items: int) -> None:
    """Note what the policy was told just now: ``which`` session or accelerator. Modifies ``execution``."""
    index = execution.clock[0].logged
    execution.log[index].kind = kind
    execution.log[index].time = execution.clock[0].now
    execution.log[index].session = which if kind == ARRIVE else -1
    execution.log[index].accelerator = which if kind == FINISH else -1
    execution.log[index].source = source
    execution.log[index].number = execution.clock[0].arrived if kind == ARRIVE else -1
    execution.log[index].queue = -1
    execution.log[index].first = -1
    execution.log[index].count = 0
    execution.log[index].items = items
    execution.log[index].start = np.nan
    execution.log[index].finish = np.nan
    execution.log[index].started = np.nan
    execution.log[index].ended = np.nan
    execution.clock[0].logged = index + 1


@njit_flat
def note_command(cluster: Cluster, execution: Execution, command: int, started: float, ended: float) -> None:
    """Note a command that is carried out just now. Modifies ``execution``."""
    index = execution.clock[0].logged
    queue, first = cluster.commands[command].queue, cluster.commands[command].first
    sent = cluster.commands[command].kind == DISPATCH
    execution.log[index].kind = SEND if sent else REFUSE
    execution.log[index].time = execution.clock[0].now
    execution.log[index].session = cluster.commands[command].session
    execution.log[index].source = 0
    execution.log[index].number = cluster.waiting[queue, first & (cluster.waiting.shape[1] - 1)].number
    execution.log[index].accelerator = cluster.commands[command].accelerator
    execution.log[index].queue = queue
    execution.log[index].first = first
    execution.log[index].count = cluster.commands[command].count
    execution.log[index].items = cluster.commands[command].items
    execution.log[index].start = cluster.commands[command].start
    execution.log[index].finish = cluster.commands[command].finish
    execution.log[index].started = started
    execution.log[index].ended = ended
    execution.clock[0].logged = index + 1


class EventLog:
    """Records a simulation from its beginning; stops at a limit, so that its memory is bounded.

    Give it to a :class:`~tuner.cluster.simulation.Simulation`, then read :attr:`entries`.

    Args:
        limit: Entries to keep, about 100 bytes each; one per event and one per command.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self.complete = True
        """Whether everything is in it; if not, the first ``limit`` entries are."""
        self._pieces: list[np.ndarray] = []
        self._kept = 0

    def take(self, entries: np.ndarray) -> None:
        """Append a copy of entries as far as there is room.   # (n,) ENTRY."""
        room = self.limit - self._kept
        if entries.size > room:
            self.complete = False
        if entries.size and room:
            self._pieces.append(np.array(entries[:room]))
            self._kept += self._pieces[-1].size

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


def replay(log: EventLog, policy: Any) -> Difference | None:
    """Tell a policy the events of a log and compare its commands, field by field and bit by bit.

    Args:
        log: A recorded simulation, or the beginning of one.
        policy: Its policy as it was at time 0; modified in place.

    Returns:
        None if the commands are identical, else the first difference.
    """
    entries = log.entries
    index = 0
    while index < entries.size:
        policy = _tell(policy, entries[index])
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


def _tell(policy: Any, event: Any) -> Any:
    """Tell one event; return the policy, with larger rings if it needed them."""
    now = float(event["time"])
    while True:
        if event["kind"] == ARRIVE:
            policy[0].board[0].items = event["items"]
            status = arrive(policy, int(event["session"]), int(event["source"]), int(event["number"]), now)
        elif event["kind"] == FINISH:
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


def chrome_trace(log: EventLog, names: Sequence[str]) -> dict[str, Any]:
    """Return a log in the Trace Event Format, for chrome://tracing or Perfetto.

    One row per accelerator shows its batches, named by session and size; counters show how many requests
    of each session wait, and instants the drops.

    Args:
        log: A recorded simulation.
        names: Of the sessions.
    """
    entries = log.entries
    events = [*_rows(entries), *_batches(entries, names), *_queues(entries, names)]
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _rows(entries: np.ndarray) -> Iterator[dict[str, Any]]:
    """Name the two groups and the row of each accelerator."""
    yield {"name": "process_name", "ph": "M", "pid": 0, "args": {"name": "accelerators"}}
    yield {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "sessions"}}
    used = entries["accelerator"][entries["kind"] == SEND]
    for accelerator in np.unique(used).tolist():
        name = {"name": f"accelerator {accelerator}"}
        yield {"name": "thread_name", "ph": "M", "pid": 0, "tid": accelerator, "args": name}


def _batches(entries: np.ndarray, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """One slice per batch, over its execution."""
    for entry in entries[entries["kind"] == SEND]:
        started, ended = float(entry["started"]), float(entry["ended"])
        yield {
            "name": f"{names[entry['session']]} x{entry['count']}",
            "cat": "batch",
            "ph": "X",
            "pid": 0,
            "tid": int(entry["accelerator"]),
            "ts": started * 1e6,
            "dur": (ended - started) * 1e6,
            "args": {
                "session": names[entry["session"]],
                "requests": int(entry["count"]),
                "first_request": int(entry["number"]),
                "sent_ms": float(entry["time"]) * 1e3,
            },
        }


def _queues(entries: np.ndarray, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """One counter per session, and an instant for every drop."""
    waiting = [0] * len(names)
    for entry in entries[np.isin(entries["kind"], (ARRIVE, SEND, REFUSE))]:
        session, time = int(entry["session"]), float(entry["time"]) * 1e6
        waiting[session] += 1 if entry["kind"] == ARRIVE else -int(entry["count"])
        yield {
            "name": f"waiting {names[session]}",
            "ph": "C",
            "pid": 1,
            "ts": time,
            "args": {"requests": waiting[session]},
        }
        if entry["kind"] == REFUSE:
            label = f"{names[session]} drops {entry['count']}"
            yield {"name": label, "cat": "drop", "ph": "i", "pid": 1, "tid": session, "ts": time, "s": "p"}

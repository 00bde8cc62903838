"""The event log of the dispatcher: everything that its schedulers were asked and answered, for replay.

A scheduler begins anew whenever servers come or go, so a log has several segments. In each, between events,
profiles, delays and options may change. A segment holds what its policy was made of, its events with their
commands, and those changes; a fresh policy must answer the same events with the same commands.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tuner.errors import StorageError
from tuner.files.json_text import parse_json
from tuner.files.storage import replace_file
from tuner.scheduling.catalogue import build_policy, options_of, set_beliefs
from tuner.scheduling.cluster import ClusterSpec, Delays, SessionSpec
from tuner.scheduling.log import ARRIVE, ENTRY, FINISH, SEND, Difference, EventLog
from tuner.scheduling.log import replay as replay_log
from tuner.scheduling.scheduler import Command, Dispatch, Scheduler

__all__ = ["IMPOSSIBLE", "Change", "Journal", "Segment", "explain"]

ENTRY_BYTES = 100
"""What an entry of a log needs."""
LARGEST = 2**28
"""Bytes of all arrays of a log, unpacked."""
IMPOSSIBLE = (ValueError, TypeError, ArithmeticError, LookupError)
"""What a policy raises over events or settings that no dispatcher has logged."""
FRAME = 20
"""Entries that a segment and a change count for beside their tables."""
WAITS = (
    "the segment ends here, as with a change of servers or knobs, before this number was sent or dropped; "
    "its request may go on under another number in a later one, have gone with an earlier number of its "
    "items, or have ended"
)
"""What is said of an entry that a scheduler still had when it ended."""
CUT_OFF = "the segment is at the log's limit and ends here, before this number was sent or dropped"
"""What is said of one that it had when nothing more was logged."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """What a running policy was made to believe, or how it was set, between two events."""

    place: int = 0
    """Entries of the log before it."""
    tables: tuple[np.ndarray, ...]
    """By session the profile on each kind of accelerator.   # M x (K, B+1) s"""
    delays: Delays
    options: Any
    """Of the policy; its defaults if None."""

    @property
    def size(self) -> int:
        """How many entries it counts for."""
        return _size(self.tables)

    def apply(self, name: str, policy: Any) -> None:
        """Make the change; ``policy``, which has this name, is modified in place."""
        set_beliefs(name, policy, self.tables, self.delays, self.options)


@dataclass(kw_only=True)
class Segment:
    """The life of one scheduler. Its log and its changes share the limit of the log."""

    policy: str
    options: Any
    spec: ClusterSpec
    log: EventLog
    changes: list[Change] = field(default_factory=list)
    _tables: int = field(init=False)
    """Entries that its tables count for, and those of its changes."""

    def __post_init__(self) -> None:
        self._tables = _size([session.latency for session in self.spec.sessions])
        self._tables += sum(change.size for change in self.changes)

    @property
    def size(self) -> int:
        """How many entries it counts for."""
        return self.log.size + self._tables

    @property
    def last_number(self) -> int:
        """The highest number of a request in it; -1 if none came."""
        entries = self.log.entries
        return int(entries["number"][entries["kind"] == ARRIVE].max(initial=-1))

    def note(self, change: Change) -> None:
        """Note a change that is made now; without room for it the log ends, for what follows hangs on it."""
        if not self.log.complete:
            return
        if self.log.size + change.size > self.log.limit:
            self.log.stop()
        else:
            self.log.limit -= change.size
            self._tables += change.size
            self.changes.append(replace(change, place=self.log.size))

    def replay(self) -> Difference | None:
        """Send the events to a fresh policy; return the first difference, None if there is none."""
        policy = build_policy(self.policy, self.spec, self.options)
        changes: list[tuple[int, Callable[[Any], None]]] = [
            (one.place, partial(one.apply, self.policy)) for one in self.changes
        ]
        return replay_log(self.log, policy, changes)


def explain(segment: Segment, number: int) -> list[str]:
    """Return what happened to an entry of a scheduler's queue, in sentences; none if it was not there.

    Args:
        segment: The life of the scheduler.
        number: The entry's number: requests are counted from 0, with as many numbers as they have items.
    """
    scheduler = Scheduler(build_policy(segment.policy, segment.spec, segment.options))
    names = [session.name for session in segment.spec.sessions]
    changes, said = list(segment.changes), list[str]()
    events = segment.log.entries
    now, answered = 0.0, False
    for place in np.flatnonzero(events["kind"] < SEND).tolist():
        while changes and changes[0].place <= place:
            changes.pop(0).apply(segment.policy, scheduler.policy)
        event = events[place]
        now = float(event["time"])
        if event["kind"] == ARRIVE:
            early = float(np.nan_to_num(event["start"]))
            if event["number"] == number:
                slo = segment.spec.sessions[int(event["session"])].slo
                due = f"due in {(slo - early) * 1e3:.1f} ms"
                said.append(f"{now:.4f} s: arrived for {names[int(event['session'])]}, {due}")
            commands = scheduler.arrive(
                int(event["session"]), now, int(event["number"]), items=int(event["items"]), early=early
            )
        elif event["kind"] == FINISH:
            commands = scheduler.finish(int(event["accelerator"]), now, void=bool(event["items"]))
        else:
            commands = scheduler.wake(now)
        about = [command for command in commands if number in command.numbers]
        said += [f"{now:.4f} s: {_command_text(command)}" for command in about]
        answered = answered or bool(about)
    if said and not answered:
        said.append(f"{now:.4f} s: {WAITS if segment.log.complete else CUT_OFF}")
    return said


def _command_text(command: Command) -> str:
    """Return a command as a sentence."""
    if isinstance(command, Dispatch):
        others = f"with {len(command.numbers) - 1} others" if len(command.numbers) > 1 else "alone"
        return (
            f"sent {others} to accelerator {command.accelerator}, to start at {command.start:.4f} s "
            f"and end by {command.finish:.4f} s"
        )
    return f"dropped, {len(command.numbers)} at once: they could not be executed in time"


class Journal:
    """The segments of one dispatcher, in the order of their beginnings.

    Args:
        limit: Entries to keep in all, about 100 bytes each; tables count for as many as have their bytes.
    """

    def __init__(self, limit: int = 1_000_000) -> None:
        self.segments: list[Segment] = []
        self._limit = limit

    @property
    def size(self) -> int:
        """How many entries it has."""
        return sum(segment.log.size for segment in self.segments)

    def begin(self, policy: str, options: Any, spec: ClusterSpec) -> Segment:
        """Begin a segment: a scheduler of this policy starts. With nothing left it is empty, and not kept."""
        left = self._limit - sum(segment.size for segment in self.segments)
        segment = Segment(policy=policy, options=options, spec=spec, log=EventLog(0))
        if left > 0:
            segment.log.limit = max(left - segment.size, 0)
            self.segments.append(segment)
        else:
            segment.log.stop()
        return segment

    def save(self, path: Path) -> None:
        """Write all of it.

        Raises:
            StorageError: It cannot be written.
        """
        arrays: dict[str, np.ndarray] = {}
        for number, segment in enumerate(self.segments):
            arrays[f"{number}.entries"] = segment.log.entries
            for index, session in enumerate(segment.spec.sessions):
                arrays[f"{number}.profile.{index}"] = session.latency
            for place, change in enumerate(segment.changes):
                for index, table in enumerate(change.tables):
                    arrays[f"{number}.change.{place}.{index}"] = table
        header = json.dumps([_described(segment) for segment in self.segments])
        arrays["header"] = np.frombuffer(header.encode(), np.uint8)
        content = io.BytesIO()
        np.savez_compressed(content, allow_pickle=False, **arrays)
        try:
            replace_file(path, content.getvalue())
        except OSError as error:
            raise StorageError(f"{path}: cannot be written: {error.strerror or error}") from error

    @classmethod
    def load(cls, path: Path) -> Journal:
        """Read a log.

        Raises:
            StorageError: It cannot be read, or is none.
        """
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                if sum(member.file_size for member in arrays.zip.infolist()) > LARGEST:
                    raise ValueError("it unpacks to more than any log has")
                header = parse_json(arrays["header"].tobytes())
                journal = cls()
                journal.segments = [_segment(number, one, arrays) for number, one in enumerate(header)]
        except OSError as error:
            raise StorageError(f"{path}: cannot be read: {error.strerror or error}") from error
        except Exception as error:  # zipfile, its unpackers and numpy's parser of headers fail in many ways
            raise StorageError(f"{path}: is no event log of the dispatcher") from error
        return journal


def _size(tables: Sequence[np.ndarray]) -> int:
    """Return how many entries of a log need as much memory as some tables, and what holds them."""
    return FRAME + sum(table.nbytes for table in tables) // ENTRY_BYTES


def _described(segment: Segment) -> dict[str, Any]:
    """Return what of a segment is no array."""
    return {
        "policy": segment.policy,
        "options": _plain(segment.options),
        "kinds": [int(kind) for kind in segment.spec.kinds],
        "delays": asdict(segment.spec.delays),
        "busy": list(segment.spec.busy.items()),
        "complete": segment.log.complete,
        "sessions": [{"name": one.name, "slo": one.slo} for one in segment.spec.sessions],
        "changes": [
            {"place": one.place, "delays": asdict(one.delays), "options": _plain(one.options)}
            for one in segment.changes
        ],
    }


def _plain(options: Any) -> Any:
    return asdict(options) if is_dataclass(options) and not isinstance(options, type) else None


def _entries(array: np.ndarray) -> np.ndarray:
    """Return what was stored as a log's entries, if it is.   # (n,) ENTRY."""
    if array.dtype != ENTRY or array.ndim != 1 or not np.isfinite(array["time"]).all():
        raise ValueError("the entries have not the form of a log's")
    return array


def _segment(number: int, header: Any, arrays: Any) -> Segment:
    make = options_of(header["policy"])

    def options(given: Any) -> Any:
        return None if given is None else make(**given)

    sessions = [
        SessionSpec(**one, latency=arrays[f"{number}.profile.{index}"])
        for index, one in enumerate(header["sessions"])
    ]
    if len(sessions) * max(one.latency.nbytes for one in sessions) > LARGEST:
        raise ValueError("the policy would need more memory than any log has")
    log = EventLog.of(_entries(arrays[f"{number}.entries"]))
    log.complete = bool(header["complete"])
    changes = [
        Change(
            place=one["place"],
            tables=tuple(arrays[f"{number}.change.{place}.{index}"] for index in range(len(sessions))),
            delays=Delays(**one["delays"]),
            options=options(one["options"]),
        )
        for place, one in enumerate(header["changes"])
    ]
    busy = {int(place): float(ends) for place, ends in header.get("busy", ())}  # older logs have none
    delays = Delays(**header["delays"])
    spec = ClusterSpec(sessions=sessions, kinds=header["kinds"], delays=delays, busy=busy)
    given = options(header["options"])
    return Segment(policy=header["policy"], options=given, spec=spec, log=log, changes=changes)

"""The daemon's records of targets, windows and decisions with their outcomes, in one SQLite file.

Each call is one transaction, so a process that is killed leaves what the last finished call wrote, never half
of one. A change of a server takes two: :meth:`Store.changing` before the server is asked,
:meth:`Store.changed` when it has answered. If the second cannot be written, because the disk is full, the
store owes it, and writes it before anything else. A change for which a crash left only the first is found by
:func:`~tuner.control.store.unfinished.unfinished_change`: only the server can say which of the two
configurations it runs.
"""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from tuner.control.decide.decision import Apply, Hold, Rollback
from tuner.control.decide.rules import PAUSED
from tuner.control.drive.state import RunState
from tuner.control.store.database import Database
from tuner.control.store.known import known_target
from tuner.control.store.rows import (
    KnobRow,
    bans_of,
    configuration_of,
    insert,
    knobs_of,
    same,
    text_of,
    text_of_bans,
    values_of,
)
from tuner.control.store.target import TargetUpdate
from tuner.errors import StorageError
from tuner.knobs import Configuration, KnobSpace
from tuner.measurement import known

if TYPE_CHECKING:
    from tuner.control.drive.journal import WindowRecord

__all__ = ["ACTIONS", "Standing", "Store", "without_credentials"]

UNENDED = "outcome IN ('decided', 'applying')"
"""The SQL condition for a decision whose end was not written."""
ACTIONS = {Hold: "hold", Apply: "apply", Rollback: "roll back"}
SLICE = 5000
"""Rows of a table that one call of :meth:`Store.prune` deletes at most: all targets wait for it."""


class Standing(NamedTuple):
    """A target as the store knows it when the daemon starts."""

    id: int
    state: RunState
    """The state at the end of the last life; its window is 0 if the target is new."""
    tries: bool = False
    """Whether a maintenance window has yet to end with the best configuration."""


class End(NamedTuple):
    """How a change ended, as values of its row."""

    outcome: str
    seconds: float | None
    error: str
    running: str
    """What the target runs since."""
    time: float
    """When it was seen, s since 1970."""


class Store(Database):
    """The daemon's records: targets, windows, decisions and events. They survive a crash.

    Args:
        path: Created with mode 0600 if it does not exist.
        now: Returns seconds since 1970.
        reading: Only read; the file must exist.
        existing: The file must exist.
        begin: Writes what a store that is made anew begins with, in the transaction that makes it.
    """

    def __init__(
        self,
        path: Path,
        *,
        now: Callable[[], float] = time.time,
        reading: bool = False,
        existing: bool = False,
        begin: Callable[[sqlite3.Connection], None] | None = None,
    ) -> None:
        self._owed: dict[int, End] = {}  # ends of decisions, not written yet
        super().__init__(path, reading=reading, existing=existing, begin=begin)
        self.now = now

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it or nothing, and before it what the store owes."""
        with self._lock:
            owed = dict(self._owed)
            with super().writing() as db:
                for decision, end in owed.items():
                    _write_end(db, decision, end)
                yield db
            for decision in owed:
                del self._owed[decision]

    def close(self) -> None:
        """Write what the store owes, if there is room now, and close the file. May be called twice."""
        if self._owed:
            with suppress(StorageError), self.writing():
                pass
        super().close()

    def target(
        self,
        name: str,
        url: str,
        space: KnobSpace,
        running: Configuration,
        *,
        objective: str | None = None,
        mode: str | None = None,
    ) -> Standing:
        """Return the state of a target, which becomes the current one of its name.

        A new target is added, unless it is known by another name or another spelling of its URL: then it goes
        on with these. A pin or rollback is taken back if it was ordered for another server, or for
        values that the knobs no longer have; a last good configuration with such values is left out, and so
        is one that was good for another objective. Knobs that were added since have what runs now in all of
        its configurations.

        Args:
            name: Its name.
            url: Its URL; credentials in it are not kept.
            space: Its knobs.
            running: Its configuration now; the original one of a new target.
            objective: The key of its objective; None to leave the one that is stored.
            mode: How the daemon treats it, such as ``observe``; None if that is not known.
        """
        with self.writing() as db:
            update = TargetUpdate(
                self,
                db,
                name=name,
                url=without_credentials(url),
                space=space,
                running=running,
                now=self.now,
            )
            row = update.write(objective, mode)
        with self.parsing_rows():
            good = configuration_of(row["last_good"]) if row["last_good"] else None
            state = RunState(
                target=url,
                original=dict(configuration_of(row["original"])),
                current=dict(configuration_of(row["running"])),
                last_good=dict(good) if good is not None and space.covers(good) else None,
                window=row["number"],
                bans=bans_of(row["bans"]),
            )
        return Standing(row["id"], state, bool(row["tries"]))

    def grids(self, name: str, url: str) -> dict[str, list[float]]:
        """Return the grids that the knobs of a target had when it was last attached; none if it is new."""
        row = known_target(self, name, without_credentials(url))
        return {} if row is None else {knob.name: knob.grid for knob in self.knobs(row["knobs"])}

    def configuration(self, text: str) -> Configuration:
        """Parse the configuration that a row holds as text.

        Raises:
            Damaged: The text is no configuration.
        """
        with self.parsing_rows():
            return configuration_of(text)

    def knobs(self, text: str) -> list[KnobRow]:
        """Parse the knobs that the row of a target holds as text.

        Raises:
            Damaged: The text does not describe knobs.
        """
        with self.parsing_rows():
            return knobs_of(text)

    def decided(
        self, target: int, record: WindowRecord, state: RunState, *, kept: bool, unused: str = ""
    ) -> int:
        """Add a window and the decision after it, before the decision is carried out.

        Args:
            target: Its number, from :meth:`target`.
            record: The window and the decision.
            state: The state of the target.
            kept: Whether the window kept the SLO.
            unused: Why nothing is learned from the window; empty if something is.

        Returns:
            The number of the decision.
        """
        decision, running = record.decision, text_of(state.current)
        changing = not isinstance(decision, Hold)
        with self.writing() as db:
            window = (
                None if record.measurement is None else self._insert_window(db, target, record, kept, unused)
            )
            db.execute(
                "UPDATE target SET number = ?, running = ? WHERE id = ?", (state.window, running, target)
            )
            _write_learned(db, target, state)
            values = {
                "target": target,
                "window": window,
                "time": self.now(),
                "action": ACTIONS[type(decision)],
                "reason": decision.reason,
                "rule": decision.rule,
                "exploring": int(getattr(decision, "exploring", False)),
                "configuration": None if isinstance(decision, Hold) else text_of(decision.configuration),
                "previous": running if changing else None,
                "expected": known(getattr(decision, "expected", math.nan)),
                "outcome": record.outcome,
            }
            return insert(db, "decision", values)

    def learned(self, target: int, state: RunState) -> None:
        """Note what changes have taught: the bans, and what a restarted server gets back."""
        with self.writing() as db:
            _write_learned(db, target, state)

    def note_tries(self, target: int, tries: bool) -> None:
        """Note whether a maintenance window of a target has yet to end with the best configuration."""
        with self.writing() as db:
            db.execute("UPDATE target SET tries = ? WHERE id = ?", (int(tries), target))

    def changing(self, decision: int) -> None:
        """Note that a server is about to be changed. It may be changed only after this has returned."""
        with self.writing() as db:
            db.execute("UPDATE decision SET outcome = 'applying' WHERE id = ?", (decision,))

    def changed(
        self,
        decision: int,
        outcome: str,
        running: Mapping[str, float],
        *,
        seconds: float = math.nan,
        error: str = "",
    ) -> None:
        """Note how a change ended. If that cannot be written, the next transaction begins with it.

        Args:
            decision: The number of the decision.
            outcome: ``applied``, ``failed`` or ``interrupted``.
            running: The configuration of the server now.
            seconds: How long it took.
            error: Why it failed.

        Raises:
            StorageError: It could not be written yet.
        """
        with self._lock:
            self._owed[decision] = End(outcome, known(seconds), error, text_of(running), self.now())
            with self.writing():
                pass

    def note(self, sentence: str, target: int | None = None) -> None:
        """Add an event: something unusual that happened."""
        with self.writing() as db:
            insert(db, "event", {"target": target, "time": self.now(), "sentence": sentence})

    def prune(self, before: float) -> int:
        """Delete a slice of the windows, decisions and events before a time; return how many.

        When none is left, that is 0. Policies and targets stay. So do a change that has not ended, the last
        change of each target, which may not be judged yet, and the windows that these followed: a clock that
        is set forward must not make them old. The last decision of each target stays, too: SQLite would give
        its number to the next one, and who asks for that number would get another decision.
        """
        newest = "id IN (SELECT max(id) FROM decision {} GROUP BY target)"
        applied = newest.format("WHERE outcome = 'applied'")
        kept = f"({UNENDED} OR {applied} OR {newest.format('')})"
        followed = "(SELECT window FROM decision WHERE time < ? AND window IS NOT NULL)"
        delete = "DELETE FROM {0} WHERE id IN (SELECT id FROM {0} WHERE time < ? {1} LIMIT ?)"
        with self.writing() as db:
            return (
                db.execute(delete.format("decision", f"AND NOT {kept}"), (before, SLICE)).rowcount
                + db.execute(
                    delete.format("window", f"AND id NOT IN {followed}"), (before, before, SLICE)
                ).rowcount
                + db.execute(delete.format("event", ""), (before, SLICE)).rowcount
            )

    def _note_observed_cost(
        self, db: sqlite3.Connection, target: int, running: Configuration, cost: float
    ) -> None:
        """Store the cost of a window with the last change, if it is the first that judges that.

        Where the daemon only observes, nobody judges.
        """
        row = db.execute(
            "SELECT decision.id, configuration, observed, knobs FROM decision "
            "JOIN target ON target.id = decision.target WHERE target.id = ? AND outcome = 'applied' "
            "AND mode IS NOT 'observe' ORDER BY decision.id DESC LIMIT 1",
            (target,),
        ).fetchone()
        if row is None or row["observed"] is not None:
            return
        with self.parsing_rows():
            wanted = {**running, **configuration_of(row["configuration"])}  # a knob may have been added since
            ours = same(knobs_of(row["knobs"]), wanted, running)
        if ours:  # if not, somebody else has changed it
            db.execute("UPDATE decision SET observed = ? WHERE id = ?", (cost, row["id"]))

    def _insert_window(
        self, db: sqlite3.Connection, target: int, record: WindowRecord, kept: bool, unused: str
    ) -> int:
        m = record.measurement
        assert m is not None
        if not unused and record.decision.rule != PAUSED.name:
            self._note_observed_cost(db, target, m.configuration, record.cost)
        values = {
            "target": target,
            "number": record.number,
            "time": self.now(),
            "seconds": m.seconds,
            "configuration": text_of(m.configuration),
            **values_of(m),
            "level": record.level,
            "cost": known(record.cost),
            "kept": int(kept),
            "disturbed": unused,
        }
        return insert(db, "window", values)


def _write_learned(db: sqlite3.Connection, target: int, state: RunState) -> None:
    good = text_of(state.last_good) if state.last_good else None
    values = (good, text_of_bans(state.bans), target)
    db.execute("UPDATE target SET last_good = ?, bans = ? WHERE id = ?", values)


def _write_end(db: sqlite3.Connection, decision: int, end: End) -> None:
    db.execute(
        "UPDATE decision SET outcome = ?, seconds = ?, error = ?, ended = ? WHERE id = ?",
        (end.outcome, end.seconds, end.error, end.time, decision),
    )
    db.execute(
        "UPDATE target SET running = ? WHERE id = (SELECT target FROM decision WHERE id = ?)",
        (end.running, decision),
    )


def without_credentials(url: str) -> str:
    """Return a target's URL without user name and password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()

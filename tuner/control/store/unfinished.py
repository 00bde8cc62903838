"""The change of a target whose end nobody wrote down, or that no window judged, because the daemon ended."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tuner.control.decide.decision import Rollback
from tuner.control.decide.evidence import FailedRequests
from tuner.control.decide.rules import BREAKER, CHANGE, ORDERED_BACK, PAUSED
from tuner.control.store.store import ACTIONS, UNENDED, Store
from tuner.knobs import Configuration, KnobSpace

__all__ = ["Unfinished", "failed_change", "unfinished_change", "unjudged_change"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Unfinished:
    """A change whose end was not recorded, or that no window judged, because the process was killed."""

    decision: int
    previous: Configuration
    wanted: Configuration
    back: bool
    """Whether it was a rollback."""
    suspect: bool
    """Whether the server was asked to run something new: it, or its host, may have died of that."""
    failed_requests: FailedRequests
    """In the last usable window before it; none without one."""
    repair: bool
    """Whether it was a rollback, or put back what was known: that is to be done, whoever was killed in it."""
    judged: bool
    """Whether it needs no judgement: it was put back at the end of a life, or after an outage."""
    seen: bool
    """Whether a window has shown what it does."""
    ended: float
    """When its end was written down, or else when it was decided, s since 1970."""
    possible: bool = True
    """Whether the knobs still have the values that were wanted; see :meth:`completed`."""

    def completed(self, space: KnobSpace, running: Mapping[str, float]) -> Unfinished:
        """Return the change with a value for each knob, also for those that were added since.

        What runs of those may be on no grid; nobody has wanted that.

        Args:
            space: The knobs.
            running: What the target was last known to run, with those.
        """
        previous, wanted = (Configuration({**running, **one}) for one in (self.previous, self.wanted))
        possible = space.covers(space.completed(self.wanted, running))
        return replace(self, previous=previous, wanted=wanted, possible=possible)


def unfinished_change(store: Store, target: int) -> Unfinished | None:
    """Return the change during which the process was killed, if there is one.

    Only the newest decision can be one: whatever was decided later shows that the process went on. Older
    ones without an end get the outcome ``interrupted``.
    """
    with store.writing() as db:
        db.execute(
            "UPDATE decision SET outcome = 'interrupted', error = 'its end was not written' "
            f"WHERE target = ? AND {UNENDED} AND id < (SELECT max(id) FROM decision WHERE target = ?)",
            (target, target),
        )
    row = store.row(f"SELECT * FROM decision WHERE target = ? AND {UNENDED} ORDER BY id DESC", target)
    return _unfinished(store, row) if row is not None else None


def failed_change(store: Store, target: int, *, within: float) -> Unfinished | None:
    """Return the last change if it has not come about as far as was seen.

    Args:
        store: The store.
        target: The target's number in it.
        within: How long ago its end was written down at most, s.
    """
    row = store.row(
        "SELECT * FROM decision WHERE target = ? AND outcome IN ('applied', 'failed', 'interrupted') "
        "ORDER BY id DESC",
        target,
    )
    if row is None or row["outcome"] == "applied":
        return None
    change = _unfinished(store, row)
    return change if change.ended >= store.now() - within else None


def unjudged_change(store: Store, target: int) -> Unfinished | None:
    """Return the last change, if the window that should judge it was never measured.

    It also waits if the last word on it was to take it back, which has not come about.
    """
    row = store.row(
        "SELECT * FROM decision WHERE target = ? AND outcome = 'applied' ORDER BY id DESC", target
    )
    if row is None or not (row["observed"] is None or _condemned(store, row)):
        return None
    change = _unfinished(store, row)
    return None if change.back or change.judged else change


def _condemned(store: Store, change: sqlite3.Row) -> bool:
    """Return whether the last verdict on a change was to take it back.

    Windows that were only watched, or that fell into a pause, have judged nothing, and an operator who rolls
    back has judged nothing either; while the circuit breaker is open nobody says what the verdict was.
    """
    row = store.row(
        "SELECT action FROM decision JOIN window ON window.id = decision.window WHERE decision.target = ? "
        "AND decision.id > ? AND disturbed = '' AND level IS NOT NULL "
        "AND rule NOT IN (?, ?, ?) ORDER BY decision.id DESC",
        change["target"],
        change["id"],
        PAUSED.name,
        ORDERED_BACK.name,
        BREAKER.name,
    )
    return row is not None and row["action"] == ACTIONS[Rollback]


def _unfinished(store: Store, row: sqlite3.Row) -> Unfinished:
    back = row["action"] == ACTIONS[Rollback]
    return Unfinished(
        decision=row["id"],
        previous=store.configuration(row["previous"]),
        wanted=store.configuration(row["configuration"]),
        back=back,
        suspect=row["outcome"] == "applying" and row["rule"] == CHANGE.name,
        failed_requests=_failed_requests(store, row),
        repair=back or row["rule"] == "",  # no rule decides to put something back
        judged=not back and row["window"] is None,
        seen=row["observed"] is not None,
        ended=row["ended"] or row["time"],
    )


def _failed_requests(store: Store, change: sqlite3.Row) -> FailedRequests:
    """Return how many requests failed in the last usable window before a change."""
    row = store.row(
        "SELECT requests, failures FROM window WHERE target = ? AND disturbed = '' "
        "AND id <= (SELECT max(window) FROM decision WHERE target = ? AND id <= ?) ORDER BY id DESC",
        change["target"],
        change["target"],
        change["id"],
    )
    if row is None:
        return FailedRequests()
    with store.parsing_rows():
        return FailedRequests(row["failures"], row["requests"] + row["failures"])

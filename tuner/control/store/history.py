"""The daemon's decisions and events, read from its store in order of time and explained for people."""

from __future__ import annotations

import math
import sqlite3
from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from tuner.control.store.rows import configuration_of, knobs_of, same
from tuner.control.store.schema import MEASURED
from tuner.control.store.store import Store
from tuner.duration import format_duration, format_latency
from tuner.errors import InvalidInput
from tuner.files.stored import with_fields
from tuner.measurement import QUANTITIES, STATISTICS

__all__ = ["StoredDecision", "StoredEvent", "StoredWindow", "events", "explain", "history", "windows"]

DECISIONS = f"""
SELECT decision.*, target.name AS name, target.knobs AS knobs, window.number AS number, window.cost,
    window.kept, window.disturbed, {", ".join(f"window.{name}" for name in MEASURED)}
FROM decision JOIN target ON target.id = decision.target LEFT JOIN window ON window.id = decision.window
"""
SHOWN = {
    quantity.name: (quantity.kind | None, Field(description=f"{quantity}."))
    for quantity in QUANTITIES
    if not quantity.statistic
} | {"latencies": (dict[str, float | None], Field(description="s, by statistic."))}
"""The quantities of a window, as fields of a model."""


@with_fields(SHOWN)
class StoredWindow(BaseModel):
    """One window; null is not known."""

    id: int
    number: int
    time: float = Field(description="When it ended, s since 1970.")
    seconds: float
    configuration: dict[str, float]
    cost: float | None
    kept: bool = Field(description="Whether it kept the SLO.")
    disturbed: str = Field(description="Why nothing is learned from it; empty if something is.")


@with_fields(SHOWN)
class StoredDecision(BaseModel):
    """A decision and its outcome, with the window before it; null is not known."""

    decision: int = Field(description="Its number.")
    target: str
    time: float = Field(description="s since 1970.")
    action: str = Field(description="hold, apply or roll back.")
    outcome: str = Field(description="Such as held or applied; decided and applying while it is carried out.")
    reason: str
    rule: str = Field(description="Which rule decided; empty where none did.")
    exploring: bool
    configuration: dict[str, float] | None = Field(description="The configuration to run.")
    previous: dict[str, float] | None = Field(description="The configuration before.")
    expected: float | None = Field(description="Learned cost before the change.")
    observed: float | None = Field(description="Cost of the first window that judged the change.")
    seconds: float | None = Field(description="How long the change took.")
    error: str
    window: int | None = Field(description="Number of the window; null if none was measured.")
    cost: float | None
    kept: bool | None
    disturbed: str = Field(description="Why the window was not used.")
    units: dict[str, str] = Field(description="The unit of each knob.")

    def verb(self) -> str:
        """Return the action, and that it was none where a change was only recommended."""
        return f"would {self.action}" if self.outcome == "recommended" else self.action

    def change(self) -> str:
        """Return which knobs differ, such as ``max_batch_size 4 → 8, max_queue_delay 0ms → 2ms``."""
        if self.configuration is None:
            return ""
        before = self.previous or {}
        parts = [
            f"{name} {self._value(name, before[name])} → {self._value(name, value)}"
            if name in before
            else f"{name} {self._value(name, value)}"
            for name, value in self.configuration.items()
            if before.get(name) != value
        ]
        return ", ".join(parts) or "the same configuration again"

    def moment(self) -> str:
        """Return when it was, in the time zone of this machine."""
        return f"{datetime.fromtimestamp(self.time):%Y-%m-%d %H:%M:%S}"

    def _value(self, name: str, value: float) -> str:
        return format_duration(value) if self.units.get(name) == "s" else f"{value:g}"


class StoredEvent(BaseModel):
    """Something unusual that happened."""

    target: str = Field(description="Empty if it concerns the daemon as a whole.")
    time: float
    sentence: str


def history(
    store: Store, *, target: str | None = None, count: int = 20, holds: bool = False
) -> list[StoredDecision]:
    """Return the newest decisions, oldest first.

    Args:
        store: The store.
        target: Only decisions about this target.
        count: How many at most.
        holds: Also decisions to change nothing.

    Raises:
        InvalidInput: There is no target of that name.
    """
    _check_target(store, target)
    rows = store.rows(
        f"{DECISIONS} WHERE (? IS NULL OR target.name = ?) AND (? OR decision.action <> 'hold') "
        "ORDER BY decision.id DESC LIMIT ?",
        target,
        target,
        holds,
        count,
    )
    with store.parsing_rows():
        return [_entry(row) for row in reversed(rows)]


def events(store: Store, *, target: str | None = None, count: int = 20) -> list[StoredEvent]:
    """Return the newest events, oldest first."""
    _check_target(store, target)
    rows = store.rows(
        "SELECT event.*, coalesce(target.name, '') AS name FROM event LEFT JOIN target "
        "ON target.id = event.target WHERE (? IS NULL OR target.name = ?) ORDER BY event.id DESC LIMIT ?",
        target,
        target,
        count,
    )
    with store.parsing_rows():
        return [
            StoredEvent(target=row["name"], time=row["time"], sentence=row["sentence"])
            for row in reversed(rows)
        ]


def windows(store: Store, target: str, count: int) -> list[StoredWindow]:
    """Return the newest windows of a target, oldest first.

    Raises:
        InvalidInput: There is no target of that name.
    """
    _check_target(store, target)
    rows = store.rows(
        "SELECT window.* FROM window JOIN target ON target.id = window.target WHERE target.name = ? "
        "ORDER BY window.id DESC LIMIT ?",
        target,
        count,
    )
    with store.parsing_rows():
        return [
            StoredWindow(**_values(row) | {"configuration": configuration_of(row["configuration"])})
            for row in reversed(rows)
        ]


def explain(store: Store, decision: int) -> tuple[StoredDecision, list[tuple[str, str]]]:
    """Return a decision with an explanation of it.

    Returns:
        The decision, and the lines of the explanation: a word as heading, and a sentence.

    Raises:
        InvalidInput: There is no such decision, or no longer.
    """
    row = store.row(f"{DECISIONS} WHERE decision.id = ?", decision) if abs(decision) < 2**63 else None
    if row is None:
        bounds = store.rows("SELECT min(id), max(id) FROM decision")[0]
        there = f"there are {bounds[0]} to {bounds[1]}" if bounds[0] is not None else "there are none yet"
        raise InvalidInput("DECISION", f"there is no decision {decision}", there)
    with store.parsing_rows():
        entry = _entry(row)
    lines = [("seen", _seen(entry)), ("decided", _decided(entry)), ("because", entry.reason)]
    if entry.rule:
        lines.append(("rule", entry.rule))
    if entry.action != "hold":
        if entry.expected is not None:
            lines.append(("expected", f"cost {entry.expected:.2f}"))
        lines.append(("outcome", _outcome(entry)))
        if entry.outcome == "applied":
            lines.append(("observed", _observed(store, row, entry)))
            lines += [
                ("then", f"decision {n['id']}: {n['action']}, {n['reason']}") for n in _next(store, row)
            ]
    return entry, lines


def _values(row: sqlite3.Row) -> dict[str, Any]:
    """Return the columns of a row, with the statistics of the latency under one name."""
    return dict(row) | {"latencies": {statistic: row[statistic] for statistic in STATISTICS}}


def _entry(row: sqlite3.Row) -> StoredDecision:
    values = _values(row) | {
        "decision": row["id"],
        "target": row["name"],
        "window": row["number"],
        "rule": row["rule"] or "",
        "disturbed": row["disturbed"] or "",
        "units": {knob.name: knob.unit for knob in knobs_of(row["knobs"])},
    }
    for name in ("configuration", "previous"):
        values[name] = configuration_of(row[name]) if row[name] else None
    return StoredDecision(**values)


def _seen(entry: StoredDecision) -> str:
    if entry.window is None:
        return "no window was measured"
    values = entry.model_dump()
    rate, latencies, failures, cut_off = (
        values[name] for name in ("rate", "latencies", "failures", "cut_off")
    )
    parts = [f"window {entry.window}"]
    if rate is not None:
        parts.append(f"{rate:.4g} requests/s")
    cut_off = math.nan if cut_off is None else cut_off
    parts += [
        f"{name} {format_latency(value, cut_off)}" for name, value in latencies.items() if value is not None
    ]
    if failures:
        parts.append(f"{failures} failed")
    if entry.cost is not None:
        parts.append(f"cost {entry.cost:.2f}, SLO {'kept' if entry.kept else 'broken'}")
    return ", ".join([*parts, *([f"not used: {entry.disturbed}"] if entry.disturbed else [])])


def _decided(entry: StoredDecision) -> str:
    exploring = " (exploring)" if entry.exploring else ""
    return f"{entry.verb()}{exploring}: {entry.change()}" if entry.action != "hold" else "hold"


def _outcome(entry: StoredDecision) -> str:
    took = f" in {format_duration(entry.seconds)}" if entry.seconds is not None else ""
    return f"{entry.outcome}{took}{f': {entry.error}' if entry.error else ''}"


def _observed(store: Store, row: sqlite3.Row, entry: StoredDecision) -> str:
    if entry.observed is None:
        return "in no window that judged it"
    groups = store.rows(
        "SELECT window.configuration, count(*) AS n, sum(window.cost) AS costs, sum(window.kept) AS kept "
        "FROM window "
        "JOIN decision ON decision.window = window.id WHERE window.target = ? AND decision.id > ? "
        "AND decision.id <= coalesce((SELECT min(id) FROM decision WHERE target = ? AND id > ? "
        "AND outcome = 'applied'), 1e18) AND window.disturbed = '' AND window.cost IS NOT NULL "
        "GROUP BY window.configuration",
        row["target"],
        row["id"],
        row["target"],
        row["id"],
    )
    with store.parsing_rows():
        knobs, ran = knobs_of(row["knobs"]), entry.configuration or {}
        ours = [group for group in groups if same(knobs, configuration_of(group["configuration"]), ran)]
    costs, kept, count = (sum(group[name] for group in ours) for name in ("costs", "kept", "n"))
    first = f"cost {entry.observed:.2f} in the first window"
    if count < 2:
        return first
    return f"{first}, {costs / count:.2f} over {count}, of which {100 * kept // count}% kept the SLO"


def _next(store: Store, row: sqlite3.Row) -> list[sqlite3.Row]:
    """Return the next decision that changed something, if there is one."""
    return store.rows(
        "SELECT * FROM decision WHERE target = ? AND id > ? AND outcome = 'applied' ORDER BY id LIMIT 1",
        row["target"],
        row["id"],
    )


def _check_target(store: Store, target: str | None) -> None:
    known = sorted({str(row["name"]) for row in store.rows("SELECT name FROM target")})
    if target is not None and target not in known:
        raise InvalidInput(
            "--target",
            f"no target '{target}' was ever attached",
            f"there are {', '.join(known) or 'none'}",
        )

"""How configurations, knobs and measurements stand in rows, and are read from there."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tuner.control.drive.state import StoredBan
from tuner.knobs import Configuration, format_value
from tuner.measurement import QUANTITIES, Measurement, known

__all__ = [
    "KnobRow",
    "bans_of",
    "configuration_of",
    "insert",
    "knobs_of",
    "measurement_of",
    "same",
    "text_of",
    "text_of_bans",
    "values_of",
]


class KnobRow(NamedTuple):
    """A knob in the row of a target."""

    name: str
    grid: list[float]
    unit: str

    def nearest(self, value: float) -> float:
        """Return the grid value closest to ``value`` (the lower one on a tie), as `Knob.nearest`."""
        return min(self.grid, key=lambda candidate: (abs(candidate - value), candidate))

    def format(self, value: float) -> str:
        """Write a value as people do: ``2ms``, ``8``."""
        return format_value(value, self.unit)


def same(knobs: Sequence[KnobRow], one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    """Whether two configurations are nearest to the same values of the knobs, as for `KnobSpace.same`.

    A server may round a value, and report one that is on no grid for a knob without effect.
    """
    return set(one) == set(other) and all(
        knob.nearest(one[knob.name]) == knob.nearest(other[knob.name]) for knob in knobs if knob.name in one
    )


def configuration_of(text: str) -> Configuration:
    """Return the configuration in a row; a ValueError or the like if there is none."""
    values = {name: float(value) for name, value in json.loads(text).items()}
    if not all(math.isfinite(value) for value in values.values()):
        raise ValueError(f"the configuration {text[:100]} is infinite")
    return Configuration(values)


def knobs_of(text: str) -> list[KnobRow]:
    """Return the knobs in a row; a ValueError or the like if there are none."""
    return [KnobRow(knob["name"], knob["grid"], knob["unit"]) for knob in json.loads(text)]


def text_of(configuration: Mapping[str, float]) -> str:
    """Return a configuration as it stands in a row."""
    return json.dumps({name: float(configuration[name]) for name in sorted(configuration)})


def text_of_bans(bans: Sequence[StoredBan]) -> str | None:
    """Return bans as they stand in a row."""
    return json.dumps([ban.model_dump() for ban in bans]) if bans else None


def bans_of(text: str | None) -> tuple[StoredBan, ...]:
    """Return the bans in a row; a ValueError or the like if it has something else."""
    return tuple(StoredBan.model_validate(ban) for ban in json.loads(text or "[]"))


def values_of(m: Measurement) -> dict[str, float | None]:
    """Return the columns for what was measured; None is not known."""
    figures = {name: known(value) for name, value in m.figures().items()}
    change = {"change_seconds": known(m.change_seconds), "change_requests": known(m.change_requests)}
    return {**figures, **change, "quantiles_mixed": int(m.quantiles_mixed), "timed": known(m.timed)}


def measurement_of(row: sqlite3.Row, configuration: Configuration) -> Measurement:
    """Return the measurement in a row, as far as an objective needs it to judge the window.

    In the row of an older store nothing may stand about the change before the window. What that cost is not
    known then, and neither is the cost of the window if changes cost something.

    Args:
        row: The row of a window that was not disturbed.
        configuration: The configuration in it.
    """
    shown: dict[str, Any] = {"requests": 0, "arrival_rate": math.nan}
    shown |= {q.field: q.kind(row[q.name]) for q in QUANTITIES if row[q.name] is not None}
    for name in ("change_seconds", "change_requests"):
        shown[name] = math.nan if row[name] is None else row[name]
    return Measurement(
        start=row["time"] - row["seconds"],
        end=row["time"],
        configuration=configuration,
        quantiles_mixed=bool(row["quantiles_mixed"]),
        timed=math.inf if row["timed"] is None else row["timed"],
        **shown,
    )


def insert(db: sqlite3.Connection, table: str, values: Mapping[str, object]) -> int:
    """Add a row and return its number; the names of the table and the columns come from our code."""
    columns, places = ", ".join(values), ", ".join("?" * len(values))
    cursor = db.execute(f"INSERT INTO {table} ({columns}) VALUES ({places})", tuple(values.values()))
    assert cursor.lastrowid is not None
    return cursor.lastrowid

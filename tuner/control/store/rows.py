"""How a measurement stands in the row of its window, and is read from there to be judged once more."""

from __future__ import annotations

import math
import sqlite3
from typing import Any

from tuner.knobs import Configuration
from tuner.measurement import QUANTITIES, Measurement, known

__all__ = ["measurement_of", "values_of"]


def values_of(m: Measurement) -> dict[str, float | None]:
    """Return the columns for what was measured; None is not known."""
    figures = {name: known(value) for name, value in m.figures().items()}
    change = {"change_seconds": known(m.change_seconds), "change_requests": known(m.change_requests)}
    return {**figures, **change, "quantiles_mixed": int(m.quantiles_mixed)}


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
        **shown,
    )

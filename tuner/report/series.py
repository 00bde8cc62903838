"""The curve of a figure, as it is stored: the median at each point with the least and the greatest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from pydantic import Field, model_validator

from tuner.files.stored import Part
from tuner.measurement import known

__all__ = ["Series", "Spread", "curve", "spread"]


class Series(Part):
    """One curve of a figure."""

    name: str
    """Which curve it is, such as a policy."""
    panel: str = ""
    """Which panel of the figure it belongs to, where there are several."""
    x: list[float]
    y: list[float | None]
    """Median over seeds; None where nothing was measured."""
    low: list[float | None] = Field(default_factory=list)
    """Least over seeds; empty if there is no spread."""
    high: list[float | None] = Field(default_factory=list)

    @model_validator(mode="after")
    def _check(self) -> Series:
        lengths = {len(self.x), len(self.y), len(self.low or self.x), len(self.high or self.x)}
        if len(lengths) > 1:
            raise ValueError(f"x, y, low and high of a curve must be equally long, but got {lengths}")
        return self


class Spread(NamedTuple):
    """Repeated values in short; None stands for a value that was not reached."""

    median: float | None
    low: float | None
    high: float | None


def spread(values: Sequence[float]) -> Spread:
    """Return median, least and greatest; a value that is not finite counts as the greatest."""
    ordered = sorted(value if math.isfinite(value) else math.inf for value in values)
    return Spread(*(known(value, 6) for value in (median(ordered), ordered[0], ordered[-1])))


def curve(name: str, x: Sequence[float], values: Sequence[Sequence[float]], *, panel: str = "") -> Series:
    """Summarise a curve: per point the median, least and greatest of its repeated values.

    Args:
        name: Which curve it is.
        x: Where its points are.
        values: Per point the values of all seeds; those that are not finite were not measured.
        panel: Which panel of the figure it belongs to.
    """
    points = [spread([v for v in repeats if math.isfinite(v)] or [math.inf]) for repeats in values]
    repeated = any(len(repeats) > 1 for repeats in values)
    return Series(
        name=name,
        panel=panel,
        x=[float(value) for value in x],
        y=[point.median for point in points],
        low=[point.low for point in points] if repeated else [],
        high=[point.high for point in points] if repeated else [],
    )

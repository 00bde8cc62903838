"""Durations that are constant or drawn: the network's delays as a scenario writes them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

__all__ = ["DelayDistribution", "parse_delay"]

FORMS = {"lognormal": "MEDIAN,SIGMA", "uniform": "LOW,HIGH", "exponential": "MEAN"}
FIX = "write a number of ms, lognormal:MEDIAN,SIGMA, uniform:LOW,HIGH or exponential:MEAN"
WIDEST = 10.0
"""Largest SIGMA: then one draw in a hundred is more than 10^10 times the median."""


@dataclass(frozen=True, slots=True)
class DelayDistribution:
    """How a delay of the network is distributed, in ms; a constant one has one value.

    >>> parse_delay("uniform:1,3").quantile(0.5)
    2.0
    """

    form: str
    """``constant``, ``lognormal``, ``uniform`` or ``exponential``."""
    first: float
    """ms; the constant, the median, the least or the mean."""
    second: float = 0.0
    """Standard deviation of the logarithm, or the largest, ms; 0 for the forms with one number."""

    @property
    def constant(self) -> bool:
        """Whether nothing is random about it."""
        return self.form == "constant"

    def draw(self, generator: np.random.Generator, count: int) -> np.ndarray:
        """Return independent draws; one is enough if it is constant.   # (count,) or (1,) ms."""
        if self.form == "lognormal":
            return generator.lognormal(math.log(self.first), self.second, count)
        if self.form == "uniform":
            return generator.uniform(self.first, self.second, count)
        if self.form == "exponential":
            return generator.exponential(self.first, count)
        return np.array([self.first])

    def quantile(self, share: float) -> float:
        """Return what a share of the draws stays below, ms; the value itself if it is constant."""
        if self.form == "lognormal":
            return self.first * math.exp(self.second * NormalDist().inv_cdf(share))
        if self.form == "uniform":
            return self.first + share * (self.second - self.first)
        if self.form == "exponential":
            return -self.first * math.log1p(-share)
        return self.first


def parse_delay(value: object) -> DelayDistribution:
    """Read a number of ms, or a distribution as ``FORMS`` writes it.

    Raises:
        ValueError: It is neither; says what to write.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        found = DelayDistribution("constant", float(value))
        if not 0 <= found.first < math.inf:
            raise ValueError(f"must be finite and at least 0, but got {value}")
        return found
    form, _, rest = str(value).strip().partition(":")
    if not isinstance(value, str) or form not in FORMS:
        raise ValueError(f"{value!r} is not a delay; {FIX}")
    try:
        numbers = [float(part) for part in rest.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != FORMS[form].count(",") + 1 or not all(0 <= n < math.inf for n in numbers):
        raise ValueError(f"{value!r} needs numbers of at least 0; write {form}:{FORMS[form]}")
    if form == "lognormal" and numbers[0] == 0:
        raise ValueError(f"{value!r}: the median must be greater than 0")
    if form == "lognormal" and numbers[1] > WIDEST:
        what = "SIGMA is the standard deviation of the logarithm, such as 0.5"
        raise ValueError(f"{value!r}: {what}, and at most {WIDEST:g}")
    if form == "uniform" and numbers[1] < numbers[0]:
        raise ValueError(f"{value!r}: `LOW <= HIGH` must hold")
    return DelayDistribution(form, *numbers)

"""The constants of RRL: those that every form has, and those of the default form.

:mod:`tuner.agents.rrl.table.parameters` has the constants of the paper's form.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from tuner.agents.load_levels import LoadLevels
from tuner.agents.rrl.drift import DriftParameters
from tuner.agents.rrl.smoothing import SmoothingParameters

__all__ = ["FormParameters", "RRLParameters"]

TEMPERATURES = ("relative", "absolute", "inverse")
LARGEST_EXPONENT = 700.0
"""``exp`` overflows beyond."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FormParameters:
    """The constants that every form of RRL has: of exploration (eq. 3), of loads and of costs."""

    perception: ClassVar[str]
    """The kind of perception, by which a saved policy names its form."""

    temperature: Literal["relative", "absolute", "inverse"] = "relative"
    """What multiplies a cost in the exponent of eq. 3. ``absolute``: beta (eq. 3). ``relative``: beta
    over the least cost learned, so that beta needs no tuning per model. ``inverse``: the authors' code, whose
    softmax is over one over Q and has no beta."""
    beta_first: float = 1000.0
    """Inverse temperature in the first window of a level."""
    beta_growth: float = 1.0
    """Factor on it per window seen at the level, at least 1."""
    beta_last: float = 1000.0
    """Largest inverse temperature. At 40 a configuration 10 % dearer is 50 times less likely than the best;
    at 1000 one that is 1 % dearer is hardly ever chosen. The default form explores by what it values
    instead."""
    carry: bool = True
    """Whether what is known of one load bears on others (beyond the paper)."""
    unit: float = 0.55
    """Seconds that a cost of 1 stands for, the SLO. ``inverse`` and labels in milliseconds need it."""
    levels: LoadLevels = field(default_factory=LoadLevels)
    """The grid of arrival rates, whose points are the states."""

    def __post_init__(self) -> None:
        if self.temperature not in TEMPERATURES or not 0 < self.unit < math.inf:
            raise ValueError(
                f"`temperature in {TEMPERATURES}` and `unit > 0` must hold, "
                f"but got {self.temperature=}, {self.unit=}"
            )
        if not (0 <= self.beta_first <= self.beta_last and self.beta_growth >= 1):
            raise ValueError(
                "`0 <= beta_first <= beta_last` and `beta_growth >= 1` must hold, "
                f"but got {self.beta_first=}, {self.beta_last=}, {self.beta_growth=}"
            )

    def beta(self, windows: int) -> float:
        """Return the inverse temperature of a level after a number of windows."""
        exponent = min(windows * math.log(self.beta_growth), LARGEST_EXPONENT)
        return min(self.beta_last, self.beta_first * math.exp(exponent))


@dataclass(frozen=True, kw_only=True, slots=True)
class RRLParameters(FormParameters):
    """The constants of the default form, tuned for few windows on a simulated batching server."""

    perception: ClassVar[str] = "smooth"

    prior: Literal["neural", "none"] = "neural"
    """What says which costs to expect before anything was tried: the network that comes with the package, or
    nothing."""
    smoothing: SmoothingParameters = field(default_factory=SmoothingParameters)
    """The Gaussian process that predicts costs."""
    horizon: float = 25.0
    """Windows for which it counts at first what a window teaches, where a prior says what to expect. The more
    there are, the more is explored. Without a prior, and for the least use, ``smoothing.optimism`` says how
    much is."""
    caution: float | None = None
    """Explore only configurations that keep the SLO with this many standard deviations to spare; None
    explores all."""
    detect_drift: bool = True
    """Whether to notice that the machine or the model has changed."""
    drift: DriftParameters = field(default_factory=DriftParameters)
    """How sensitive that is."""
    memory: int = 4096
    """Windows remembered. Of more, the oldest of what was measured most often are forgotten, so that
    something is left of every load."""

    def __post_init__(self) -> None:
        FormParameters.__post_init__(self)
        if self.prior not in ("neural", "none"):
            raise ValueError(f"`prior` is neural or none, but got {self.prior=}")
        if self.caution is not None and not self.caution >= 0:
            raise ValueError(f"`caution >= 0` must hold, but got {self.caution=}")
        if not 1 <= self.horizon < math.inf:
            raise ValueError(f"`horizon >= 1` must hold, but got {self.horizon=}")
        if self.memory < 1:
            raise ValueError(f"`memory >= 1` must hold, but got {self.memory=}")

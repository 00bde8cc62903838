"""The constants of region-based reinforcement learning, with the defaults we chose for them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from tuner.agents.load_levels import LoadLevels
from tuner.agents.rrl.drift import DriftParameters
from tuner.agents.rrl.network.estimator import EstimatorParameters
from tuner.agents.rrl.schedule import TEMPERATURES, geometric
from tuner.agents.rrl.smoothing import SmoothingParameters

__all__ = ["SMOOTH_ONLY", "TABLE_ONLY", "RRLParameters"]

TABLE_ONLY = frozenset(
    {
        "delta", "gamma", "learning_rate", "rate_exponent", "estimate_weight", "q0", "optimism",
        "shared_table", "noise", "transfer_windows", "estimator",
    }
)  # fmt: skip
"""Parameters that mean nothing where costs are smoothed."""
SMOOTH_ONLY = frozenset({"smoothing", "caution", "detect_drift", "drift", "memory"})
"""Parameters that mean nothing to a table."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RRLParameters:
    """The constants of RRL; the defaults were tuned for few windows on a simulated batching server.

    :data:`~tuner.agents.rrl.presets.PRESETS` holds the paper's form and that of its authors' code.
    """

    perception: Literal["smooth", "table"] = "smooth"
    """How costs are perceived: ``smooth`` is ours (:mod:`tuner.agents.rrl.perception`), ``table`` the
    paper's (:mod:`tuner.agents.rrl.table.perception`). Each has parameters that mean nothing to the other."""
    delta: float = 1.0
    """Table: size of the region in grid steps (section 4.2); 0 is plain Q-learning. The paper's best is 1."""
    gamma: float = 0.0
    """Table: discount of future costs, 0..1 (exclusive of 1)."""
    learning_rate: float | None = None
    """Table: a constant learning rate, above 0 and at most 1; None lets it fall with the evidence."""
    rate_exponent: float = 0.8
    """Table: how fast the learning rate falls, above 0.5 and at most 1; 1 averages, less follows drift."""
    estimate_weight: float = 0.25
    """Table: weight of an estimate against a measurement, above 0 and at most 1; 1 tells them not apart."""
    temperature: Literal["relative", "absolute", "inverse"] = "relative"
    """``relative``: beta over the least learned cost; ``absolute``: beta as it is (eq. 3); ``inverse``: the
    authors' code, whose softmax is over one over Q and has no beta."""
    beta_first: float = 1000.0
    """Inverse temperature in the first window of a level."""
    beta_growth: float = 1.0
    """Factor on it per window seen at the level, at least 1."""
    beta_last: float = 1000.0
    """Where it stops growing; at 40 a configuration 10 % dearer is 50 times less likely than the best, at
    1000 one 1 % dearer is hardly ever chosen."""
    q0: float | Literal["first"] | None = None
    """Table: Q of the unknown; None is the paper's 1/|C|, ``first`` the first cost measured (the authors'
    code)."""
    optimism: float = 0.3
    """Table: share of q0 in the value of what was never measured; 0 believes estimates, 1 is the paper."""
    carry: bool = True
    """Whether what is known of one load bears on others (beyond the paper)."""
    shared_table: bool = False
    """Table: one for all load levels, as in the authors' code."""
    noise: float = 0.15
    """Table: relative noise of one window; :meth:`RRL.best` adds one standard error to costs."""
    unit: float = 0.55
    """Seconds that a cost of 1 stands for, the SLO: what ``inverse`` and labels in milliseconds refer to."""
    transfer_windows: int = 14
    """Table: windows of exploration that a transferred policy is spared at each level it knows."""
    levels: LoadLevels = field(default_factory=LoadLevels)
    """The grid of arrival rates that tells states apart."""
    estimator: EstimatorParameters = field(default_factory=EstimatorParameters)
    """Table: the estimation function."""
    smoothing: SmoothingParameters = field(default_factory=SmoothingParameters)
    """Smooth: what takes its place."""
    caution: float | None = None
    """Smooth: explore only what is this many standard deviations sure to keep the SLO; None explores all."""
    detect_drift: bool = True
    """Smooth: whether to notice that the machine has changed."""
    drift: DriftParameters = field(default_factory=DriftParameters)
    """Smooth: how."""
    memory: int = 4096
    """Smooth: windows remembered."""

    def __post_init__(self) -> None:
        if not (self.delta >= 0 and 0 <= self.gamma < 1 and 0 <= self.optimism <= 1 and self.noise >= 0):
            raise ValueError(
                "`delta >= 0`, `0 <= gamma < 1`, `0 <= optimism <= 1` and `noise >= 0` must hold, "
                f"but got {self.delta=}, {self.gamma=}, {self.optimism=}, {self.noise=}"
            )
        if not (0.5 < self.rate_exponent <= 1 and 0 < self.estimate_weight <= 1):
            raise ValueError(
                "`0.5 < rate_exponent <= 1` and `0 < estimate_weight <= 1` must hold, "
                f"but got {self.rate_exponent=}, {self.estimate_weight=}"
            )
        if self.perception not in ("smooth", "table") or self.memory < 1:
            raise ValueError(
                "`perception` is smooth or table and `memory >= 1` must hold, "
                f"but got {self.perception=}, {self.memory=}"
            )
        if self.learning_rate is not None and not 0 < self.learning_rate <= 1:
            raise ValueError(f"`0 < learning_rate <= 1` must hold, but got {self.learning_rate=}")
        if self.q0 not in (None, "first") and not (math.isfinite(float(self.q0)) and float(self.q0) >= 0):
            raise ValueError(f"`q0 >= 0` must hold, but got {self.q0=}")
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
        """Return the inverse temperature after so many windows at a level."""
        return geometric(self.beta_first, self.beta_growth, self.beta_last, windows)

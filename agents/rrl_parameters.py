"""The constants of region-based reinforcement learning, with the defaults we chose for them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tuner.agents.estimator import EstimatorParameters
from tuner.agents.load_levels import LoadLevels

__all__ = ["RRLParameters"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RRLParameters:
    """The constants of RRL; the defaults were tuned for few windows on a simulated batching server."""

    delta: float = 1.0
    """Size of the region in grid steps (section 4.2); 0 is plain Q-learning. The paper's best is 1."""
    gamma: float = 0.0
    """Discount of future costs, 0..1 (exclusive of 1)."""
    rate_exponent: float = 0.8
    """How fast the learning rate falls, above 0.5 and at most 1; 1 averages, less follows drift."""
    estimate_weight: float = 0.25
    """Weight of an estimate against a measurement, above 0 and at most 1."""
    beta_first: float = 2.0
    """Inverse temperature in the first window of a level, over the least learned cost."""
    beta_growth: float = 1.25
    """Factor on it per window seen at the level, at least 1."""
    beta_last: float = 40.0
    """Where it stops growing; at 40 a configuration 10 % dearer is 50 times less likely than the best."""
    q0: float | None = None
    """Q of the unknown; None is the paper's 1/|C|."""
    optimism: float = 0.3
    """Share of q0 in the value of what was never measured; 0 believes estimates, 1 is the paper."""
    carry: bool = True
    """Predict a level that was never seen from the nearest one seen (beyond the paper)."""
    noise: float = 0.15
    """Relative noise of one window; :meth:`RRL.best` adds one standard error to costs it is unsure of."""
    transfer_windows: int = 14
    """Windows of exploration that a transferred policy is spared at each level it knows."""
    levels: LoadLevels = field(default_factory=LoadLevels)
    """The grid of arrival rates that tells states apart."""
    estimator: EstimatorParameters = field(default_factory=EstimatorParameters)
    """The estimation function."""

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
        if self.q0 is not None and not (math.isfinite(self.q0) and self.q0 >= 0):
            raise ValueError(f"`q0 >= 0` must hold, but got {self.q0=}")
        if not (0 <= self.beta_first <= self.beta_last and self.beta_growth >= 1):
            raise ValueError(
                "`0 <= beta_first <= beta_last` and `beta_growth >= 1` must hold, "
                f"but got {self.beta_first=}, {self.beta_last=}, {self.beta_growth=}"
            )

    def beta(self, windows: int) -> float:
        """Return the inverse temperature after so many windows at a level."""
        growth = min(windows * math.log(self.beta_growth), 700.0)  # exp overflows beyond
        return min(self.beta_last, self.beta_first * math.exp(growth))

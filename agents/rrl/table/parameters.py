"""The constants of the table form. The defaults are our answers to what the paper leaves open."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from tuner.agents.rrl.network.estimator import EstimatorParameters
from tuner.agents.rrl.parameters import FormParameters

__all__ = ["TableParameters"]


@dataclass(frozen=True, kw_only=True, slots=True)
class TableParameters(FormParameters):
    """The constants of RRL with a table; :mod:`tuner.agents.rrl.table.presets` has the paper's values."""

    perception: ClassVar[str] = "table"

    beta_first: float = 2.0
    """Inverse temperature in the first window of a level."""
    beta_growth: float = 1.25
    """Factor on it per window seen at the level, at least 1."""
    beta_last: float = 40.0
    """Largest inverse temperature."""
    delta: float = 1.0
    """Size of the region in grid steps (section 4.2); 0 is plain Q-learning. The paper's best is 1."""
    gamma: float = 0.0
    """Discount of future costs, 0..1 (exclusive of 1)."""
    learning_rate: float | None = None
    """A constant learning rate, above 0 and at most 1; None lets it fall with the evidence."""
    rate_exponent: float = 0.8
    """How fast the learning rate falls, above 0.5 and at most 1; 1 averages, less follows drift."""
    estimate_weight: float = 0.25
    """Weight of an estimate against a measurement, above 0 and at most 1; 1 weighs both alike."""
    q0: float | Literal["first"] | None = None
    """Q of the unknown; None is the paper's 1/|C|, ``first`` the first cost measured (the authors' code)."""
    optimism: float = 0.3
    """Share of q0 in the value of a configuration never measured; 0 believes estimates, 1 is the paper."""
    shared_table: bool = False
    """Whether all load levels share one table, as in the authors' code."""
    noise: float = 0.15
    """Relative noise of one window; :meth:`RRL.best` adds one standard error to costs."""
    transfer_windows: int = 14
    """Windows of exploration that a transferred agent is spared at each level it knows."""
    estimator: EstimatorParameters = field(default_factory=EstimatorParameters)
    """The estimation function."""

    def __post_init__(self) -> None:
        FormParameters.__post_init__(self)
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
        if self.learning_rate is not None and not 0 < self.learning_rate <= 1:
            raise ValueError(f"`0 < learning_rate <= 1` must hold, but got {self.learning_rate=}")
        if self.q0 not in (None, "first") and not (math.isfinite(float(self.q0)) and float(self.q0) >= 0):
            raise ValueError(f"`q0 >= 0` must hold, but got {self.q0=}")

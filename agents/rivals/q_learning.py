"""Plain Q-learning: RRL with a region of one point and no estimator (the paper's Fig. 11, delta 0).

The table, its learning rate, its Boltzmann policy and its temperature are those of RRL's table
(``table_perception.py``), so that a comparison shows the region and the estimator alone.
"""

from __future__ import annotations

from dataclasses import replace

from tuner.agents.rrl.network.estimator import EstimatorParameters
from tuner.agents.rrl.presets import TABLE

__all__ = ["Q_LEARNING"]

NEVER = EstimatorParameters(hidden=(1,), minimum_samples=2**31, memory=1)
"""An estimator that is never trained: g = 0."""

Q_LEARNING = replace(TABLE, delta=0.0, carry=False, estimator=NEVER)
"""RRL's parameters that make it plain Q-learning."""

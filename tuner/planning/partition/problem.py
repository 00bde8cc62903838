"""What is to be partitioned, and what a partition is worth: constraints and objective of appendix A."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tuner.rounding import ROUNDING

__all__ = ["NOWHERE", "PartitionProblem", "imbalance"]

NOWHERE = -1
"""The place before of a model that is new."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PartitionProblem:
    """Models that are divided among equal sub-clusters; every sub-cluster loads each of its models."""

    parts: int
    rate: np.ndarray
    """Of each model, requests/s.   # (m,)"""
    memory: np.ndarray
    """Of each model, bytes.   # (m,)"""
    runtime: np.ndarray
    """Further bytes while a model executes; one executes at a time.   # (m,)"""
    move_cost: np.ndarray
    """Of loading a model, and of unloading it.   # (m,)"""
    before: np.ndarray
    """The sub-cluster of each model in the epoch before, NOWHERE if it is new.   # (m,)"""
    most_rate: float = math.inf
    """requests/s of a sub-cluster: what its dispatcher can do."""
    most_memory: float = math.inf
    """Bytes of an accelerator."""
    most_disruption: float = math.inf
    """Sum of the costs of what is loaded and unloaded."""
    memory_weight: float = 1.0
    """What the imbalance of the memory counts beside that of the rate."""

    @property
    def size(self) -> int:
        """How many models there are."""
        return self.rate.size

    def sums(self, assignment: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return rate and memory of each sub-cluster.   # (l,), (l,)."""
        rate = np.bincount(assignment, self.rate, self.parts)
        return rate, np.bincount(assignment, self.memory, self.parts)

    def objective(self, assignment: np.ndarray) -> float:
        """Return the deviations from the means, relative to them (eq. 4, which does not divide)."""
        rate, memory = self.sums(assignment)
        return _deviation(rate) + self.memory_weight * _deviation(memory)

    def disruption(self, assignment: np.ndarray) -> float:
        """Return the costs of loading and unloading (left side of eq. 11)."""
        moved, old = assignment != self.before, self.before != NOWHERE
        return float((self.move_cost * moved * (1 + old)).sum())

    def allows(self, assignment: np.ndarray) -> bool:
        """Whether all constraints hold (eq. 5, 6 and 11)."""
        rate, memory = self.sums(assignment)
        largest = np.zeros(self.parts)
        np.maximum.at(largest, assignment, self.runtime)
        return bool(
            (rate <= self.most_rate * (1 + ROUNDING)).all()
            and (memory + largest <= self.most_memory * (1 + ROUNDING)).all()
            and self.disruption(assignment) <= self.most_disruption * (1 + ROUNDING)
        )


def _deviation(sums: np.ndarray) -> float:
    mean = float(sums.mean())
    return float(np.abs(sums - mean).max()) / mean if mean > 0 else 0.0


def imbalance(sums: np.ndarray) -> float:
    """Return the imbalance factor of the paper, ``(max - min) / mean``; 0 if all is 0."""
    mean = float(sums.mean())
    return float(sums.max() - sums.min()) / mean if mean > 0 else 0.0

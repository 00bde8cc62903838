"""Nexus on Blox, Figure 5: the requests that are dropped on a given number of accelerators."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from tuner.experiments.blox.jobs import random_loads
from tuner.experiments.frame.drawing import curves_drawn
from tuner.experiments.frame.experiment import Answers, Experiment, Scaled, experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.planning.rounds.allocation import Rule, admit
from tuner.report import style
from tuner.report.series import Series, curve

__all__ = ["DroppedJobs"]

JOBS = 100
RULES: tuple[Rule, ...] = ("fifo", "nexus")
Setting = tuple[Rule, int]
"""The rule, and the number of accelerators."""


@experiment(
    name="blox-fig5", title="Requests dropped against accelerators", paper="Nexus on Blox", minutes=0.3
)
class DroppedJobs(Experiment[Setting, float]):
    """The bad rate of a round of 100 jobs, %."""

    accelerators = Scaled((5, 20, 40, 60, 80, 100, 120, 140), quick=(5, 60))

    def tasks(self) -> list[Setting]:
        return list(product(RULES, self.accelerators))

    def measure(self, task: Setting, seed: int) -> float:
        rule, accelerators = task
        loads = random_loads(np.random.default_rng(seed), JOBS)
        return 100 * admit(rule, loads, accelerators).bad_rate

    def rows(self, found: Answers[Setting, float]) -> Iterator[Row]:
        for (rule, accelerators), answers in found.items():
            yield row(f"{rule}, {accelerators} accelerators: dropped", answers, unit="%")

    def series(self, found: Answers[Setting, float]) -> Iterator[Series]:
        for rule in RULES:
            own = {count: answers for (each, count), answers in found.items() if each == rule}
            yield curve(rule, list(own), list(own.values()))

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw the bad rate against the accelerators."""
        title = f"A round of {JOBS} jobs"
        drawing, _ = curves_drawn(result, title, xlabel="accelerators", ylabel="requests dropped, %")
        return [drawing]

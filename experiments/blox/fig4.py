"""Nexus on Blox, Figure 4: the accelerators that 1 to 500 jobs need, FIFO against Nexus."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

import numpy as np

from tuner.experiments.blox.jobs import random_loads
from tuner.experiments.frame.drawing import curves_drawn
from tuner.experiments.frame.experiment import Answers, Experiment, Scaled, experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.planning.rounds.allocation import nodes_for
from tuner.report import style
from tuner.report.series import Series, curve

__all__ = ["AcceleratorsOfJobs"]

PUBLISHED = 50.0
"""% of FIFO's at 500 jobs, from the text."""
Needed = tuple[int, int]
"""Accelerators under FIFO and under Nexus."""


@experiment(name="blox-fig4", title="Accelerators for 1 to 500 jobs", paper="Nexus on Blox", minutes=0.2)
class AcceleratorsOfJobs(Experiment[int, Needed]):
    """How many both need, for each number of jobs."""

    counts = Scaled((1, 10, 50, 100, 200, 300, 400, 500), quick=(1, 50))

    def tasks(self) -> list[int]:
        return list(self.counts)

    def measure(self, task: int, seed: int) -> Needed:
        loads = random_loads(np.random.default_rng((seed, task)), task)
        return len(nodes_for("fifo", loads)), len(nodes_for("nexus", loads))

    def rows(self, found: Answers[int, Needed]) -> Iterator[Row]:
        for count, answers in found.items():
            shares = [100 * nexus / fifo for fifo, nexus in answers]
            fifo, nexus = (median(answer[place] for answer in answers) for place in range(2))
            yield row(
                f"{count} jobs: Nexus of FIFO",
                shares,
                unit="%",
                published=PUBLISHED if count == 500 else None,
                note=f"{nexus:g} against {fifo:g}",
            )

    def series(self, found: Answers[int, Needed]) -> Iterator[Series]:
        for place, name in enumerate(("FIFO", "Nexus")):
            values = [[answer[place] for answer in answers] for answers in found.values()]
            yield curve(name, list(found), values)

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw the accelerators against the jobs."""
        title = "Accelerators for a round of jobs"
        drawing, _ = curves_drawn(result, title, xlabel="jobs", ylabel="accelerators")
        return [drawing]

"""Nexus, section 7.4: how many accelerators a plan uses, beside the least that any could use.

The lower bound runs every session at the throughput that an accelerator of its own would have, and fills
accelerators without a gap. Mixes are random models, SLOs and rates of about 16 accelerators.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tuner.experiments.blox.jobs import known_models, random_jobs
from tuner.experiments.frame.experiment import Answers, Experiment, Scaled, experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.planning.packing.load import SessionLoad
from tuner.planning.packing.squishy import pack
from tuner.report import style
from tuner.report.series import Series, curve

__all__ = ["AcceleratorsOverBound", "mix"]

SIZES = (4, 8, 16, 32, 64)
"""Accelerators that the mixes need at least, about."""
SHOWN = 16
PUBLISHED = 84.0
"""% of the bound on 16 accelerators."""


@experiment(
    name="nexus-bound",
    title="The least accelerators that any plan could use, over those of squishy packing",
    paper="Nexus",
    minutes=0.1,
)
class AcceleratorsOverBound(Experiment[int, list[float]]):
    """Random mixes of all sizes."""

    mixes = Scaled(50, quick=5)
    """Of each size and seed."""

    def tasks(self) -> list[int]:
        return list(SIZES)

    def measure(self, task: int, seed: int) -> list[float]:
        rng = np.random.default_rng((seed, task))
        found = []
        for _ in range(self.mixes):
            loads = mix(rng, task)
            found.append(100 * sum(one.rate / one.peak for one in loads) / len(pack(loads)))
        return found

    def rows(self, found: Answers[int, list[float]]) -> Iterator[Row]:
        for size, answers in found.items():
            shares = [share for each in answers for share in each]
            published = PUBLISHED if size == SHOWN else None
            note = f"{len(shares)} random mixes; the published one is that of the paper's applications"
            yield row(
                f"{size} accelerators: bound over used", shares, unit="%", published=published, note=note
            )

    def series(self, found: Answers[int, list[float]]) -> Iterator[Series]:
        yield curve("squishy packing", SIZES, [[x for each in found[size] for x in each] for size in SIZES])

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw the share against the size."""
        figure, axes = style.figure("Accelerators: lower bound over used", size=(5.6, 3.6))
        axis = axes[0, 0]
        style.curves(axis, result.panel())
        axis.axhline(PUBLISHED, color="0.7", linewidth=1)
        axis.set(xlabel="lower bound, accelerators", ylabel="%", xscale="log", ylim=(0, 100))
        return [style.Drawing(figure)]


def mix(rng: np.random.Generator, size: int) -> list[SessionLoad]:
    """Return sessions that need about as many accelerators at least."""
    models, loads, need = known_models(), list[SessionLoad](), 0.0
    while need < size:
        (job,) = random_jobs(rng, 1, list(models))
        load = SessionLoad(
            name=str(len(loads)), latency=models[job.model].latency, budget=job.slo, rate=job.rate
        )
        loads.append(load)
        need += load.rate / load.peak
    return loads

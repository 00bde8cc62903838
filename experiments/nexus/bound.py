"""Nexus, section 7.4: how many accelerators a plan uses, beside the least that any could use.

The paper's lower bound runs every session at the highest throughput that its model has on an accelerator,
whatever its SLO. Ours, which no plan of this kind can pass either, is the highest throughput within the SLO.
A third one also knows that a session that shares an accelerator executes a batch in every duty cycle.

Mixes are random models, SLOs and rates of about 16 accelerators and of other sizes; and the applications of
the paper (Table 4) at random rates, where all streams of a stage are one session, as their models are the
same or share a prefix.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np

from tuner.experiments.blox.jobs import known_models, random_jobs
from tuner.experiments.frame.experiment import Answers, Experiment, Scaled, experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.nexus.applications import APPLICATIONS, Stage, stages_of
from tuner.planning.packing.consolidation import consolidate
from tuner.planning.packing.exact import fewest_nodes
from tuner.planning.packing.load import SessionLoad, load_arrays
from tuner.planning.packing.squishy import best_node, is_saturated, pack
from tuner.report import style
from tuner.report.series import Series, curve

__all__ = ["AcceleratorsOverBound", "Bound", "Used", "applications", "mix", "used_by"]

SIZES = (4, 8, 16, 32, 64)
"""Accelerators that the mixes need at least, about."""
SHOWN = 16
KINDS = ("random", "applications")
SHARE = (0.5, 1.5)
"""Of the load of an application, and of its stages: from, to."""
LONGEST = 5.0
"""Largest batches that are known: they take this many times the SLO that Table 5 has for the model."""
BOUNDS = {
    "best": ("the paper's bound", "the highest throughput of each model, whatever the SLO"),
    "within": ("bound within the SLOs", "the highest throughput within the SLO"),
    "cycles": ("bound with duty cycles", "a batch in every cycle of an accelerator that is shared"),
}
"""Field of :class:`Used` -> what a row calls the bound, and what it is."""
PLANS = {"used": "used", "used by Algorithm 1": "greedy"}
"""What a row calls a plan -> field of :class:`Used`."""
NEED = 9.8
"""Accelerators that the applications need at least (published)."""
PUBLISHED = 84.0
"""% of the bound on 16 accelerators: 9.8 of 11.7."""


class Bound(NamedTuple):
    """A mix."""

    kind: str
    """``random`` or ``applications``."""
    size: int
    """Accelerators that it needs at least, about."""


class Used(NamedTuple):
    """Accelerators for one mix: three bounds, and what plans use."""

    best: float
    """If every model executed the batches of its highest throughput, whatever the SLO (the paper's bound)."""
    within: float
    """Likewise, within the SLO."""
    cycles: float
    """Likewise, but sessions that share an accelerator execute in the best duty cycle of each."""
    greedy: int
    """Of Algorithm 1."""
    used: int
    """Of the planner."""
    fewest: int | None
    """Of the best packing of the residues, where integer programming finds it."""


Mixes = Answers[Bound, list[Used]]


@experiment(
    name="nexus-bound",
    title="The least accelerators that any plan could use, over those of squishy packing",
    paper="Nexus",
    minutes=0.5,
)
class AcceleratorsOverBound(Experiment[Bound, list[Used]]):
    """Mixes of all sizes."""

    mixes = Scaled(20, quick=3)
    """Of each size and seed."""

    def tasks(self) -> list[Bound]:
        return [*(Bound("random", size) for size in SIZES), Bound("applications", SHOWN)]

    def measure(self, task: Bound, seed: int) -> list[Used]:
        rng, random = np.random.default_rng((seed, task.size)), task.kind == "random"
        return [used_by(mix(rng, task.size) if random else applications(rng)) for _ in range(self.mixes)]

    def rows(self, found: Mixes) -> Iterator[Row]:
        for size in SIZES:
            yield _row_of_size(size, _all(found[Bound("random", size)]))
        for kind in KINDS:
            yield from _rows_of_kind(kind, _all(found[Bound(kind, SHOWN)]))
        solved = [one for one in _all(found[Bound("random", SIZES[0])]) if one.fewest is not None]
        note = f"{len(solved)} random mixes of about {SIZES[0]} accelerators, by integer programming"
        for plan, used in PLANS.items():
            gaps = sum(getattr(one, used) for one in solved) / sum(one.fewest or 0 for one in solved) - 1
            yield row(f"{plan}, over the fewest", [100 * gaps], unit="% more", note=note)

    def series(self, found: Mixes) -> Iterator[Series]:
        for name, used in (("planner", "used"), ("Algorithm 1", "greedy")):
            shares = [
                [100 * one.within / getattr(one, used) for one in _all(found[Bound("random", size)])]
                for size in SIZES
            ]
            yield curve(name, SIZES, shares)
        shares = [
            [100 * one.within / one.cycles for one in _all(found[Bound("random", size)])] for size in SIZES
        ]
        yield curve("most that duty cycles allow", SIZES, shares)

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw the share against the size."""
        figure, axes = style.figure("Accelerators: lower bound over used", size=(5.6, 3.6))
        axis = axes[0, 0]
        style.curves(axis, result.panel())
        axis.axhline(PUBLISHED, color="0.7", linewidth=1)
        axis.set(xlabel="lower bound, accelerators", ylabel="%", xscale="log", ylim=(0, 100))
        style.legend(axis, loc="lower right")
        return [style.Drawing(figure)]


def _all(answers: list[list[Used]]) -> list[Used]:
    return [one for each in answers for one in each]


def _row_of_size(size: int, mixes: list[Used]) -> Row:
    """Return what the planner uses for random mixes of one size, beside the bound within the SLOs."""
    return row(
        f"{size} accelerators: bound over used",
        [100 * one.within / one.used for one in mixes],
        unit="%",
        published=PUBLISHED if size == SHOWN else None,
        note=f"{len(mixes)} random mixes; within the SLOs",
    )


def _rows_of_kind(kind: str, mixes: list[Used]) -> Iterator[Row]:
    """Yield what each plan uses for mixes of one kind, beside each of the bounds."""
    for (bound, (name, note)), (plan, used) in product(BOUNDS.items(), PLANS.items()):
        shares = [100 * getattr(one, bound) / getattr(one, used) for one in mixes]
        published = PUBLISHED if bound == "best" and used == "used" else None
        yield row(f"{kind}: {name} over {plan}", shares, unit="%", published=published, note=note)


def used_by(loads: list[SessionLoad]) -> Used:
    """Return what plans of a mix use."""
    greedy, planned, arrays = pack(loads), consolidate(loads), load_arrays(loads)
    fewest = fewest_nodes(loads, planned, memory=math.inf)
    shared = [node for node in greedy if not is_saturated(loads, node)]
    alone = [best_node(arrays, [member]) for node in shared for member in node.loads]
    return Used(
        best=sum(one.rate / one.best for one in loads),
        within=sum(one.rate / one.peak for one in loads),
        cycles=len(greedy) - len(shared) + sum(node.occupancy for node in alone if node is not None),
        greedy=len(greedy),
        used=len(planned),
        fewest=None if fewest is None else len(fewest),
    )


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


def applications(rng: np.random.Generator) -> list[SessionLoad]:
    """Return the sessions of the paper's applications at random rates, which need what the paper's need."""
    needs: dict[Stage, float] = {}
    for application in APPLICATIONS:
        share = rng.uniform(*SHARE)
        for stage in stages_of(application):
            needs[stage] = needs.get(stage, 0.0) + share * rng.uniform(*SHARE)
    scale, loads = NEED / sum(needs.values()), []
    for stage, need in needs.items():
        latency = stage.model.latency(LONGEST * stage.model.slo_ms)
        load = SessionLoad(name=stage.model.name, latency=latency, budget=stage.slo_ms / 1e3, rate=0.0)
        loads.append(replace(load, rate=scale * need * load.best))
    return loads

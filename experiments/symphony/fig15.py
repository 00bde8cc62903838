"""Symphony, Figure 15: how even partitions of 800 models are, by integer programming and at random.

Each instance has 800 models of five sizes in 20 sub-clusters, with exponential rates. Both solvers have ten
seconds; the imbalance is ``(max - min) / mean`` over the sub-clusters, of the rates and of the memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tuner.experiments.frame.drawing import curves_drawn
from tuner.experiments.frame.experiment import Answers, Experiment, Scaled, experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.planning.partition.problem import NOWHERE, PartitionProblem, imbalance
from tuner.planning.partition.solver import Partition, find_partition, random_partition
from tuner.report import style
from tuner.report.series import Series, curve

__all__ = ["PartitionedModels"]

SIZES = (60.0, 100.0, 300.0, 500.0, 900.0)
"""MiB of a model's weights."""
MEAN_RATE = 300.0
"""requests/s"""
SOLVERS = ("integer programming", "random")


class Imbalance(NamedTuple):
    """Of both solvers, %."""

    rate: tuple[float, float]
    memory: tuple[float, float]
    seconds: float
    """That integer programming took."""


@experiment(
    name="symphony-fig15",
    title="Imbalance of 800 models in 20 sub-clusters, by integer programming and at random",
    paper="Symphony",
    minutes=7,
    repeated=False,
)
class PartitionedModels(Experiment[int, Imbalance]):
    """Random instances, each solved by both."""

    instances = Scaled(20, quick=2)
    models = Scaled(800, quick=100)
    parts = Scaled(20, quick=5)
    limit = Scaled(10.0, quick=1.0)
    """s"""

    def tasks(self) -> list[int]:
        return list(range(self.instances))

    def measure(self, task: int, seed: int) -> Imbalance:  # noqa: ARG002 - the task is the seed
        rng = np.random.default_rng(task)
        problem = PartitionProblem(
            parts=self.parts,
            rate=rng.exponential(MEAN_RATE, self.models),
            memory=rng.choice(SIZES, self.models),
            runtime=rng.uniform(10, 100, self.models),
            move_cost=np.ones(self.models),
            before=np.full(self.models, NOWHERE),
        )
        found = find_partition(problem, seconds=self.limit, seed=task)
        other = random_partition(problem, seconds=self.limit, seed=task)
        assert other is not None, "there are no limits to keep"
        ours, theirs = _factors(problem, found), _factors(problem, other)
        return Imbalance((ours[0], theirs[0]), (ours[1], theirs[1]), found.seconds)

    def rows(self, found: Answers[int, Imbalance]) -> Iterator[Row]:
        all_of = [one for answers in found.values() for one in answers]
        for place, solver in enumerate(SOLVERS):
            yield row(f"{solver}: of the rates", [one.rate[place] for one in all_of], unit="%")
            yield row(f"{solver}: of the memory", [one.memory[place] for one in all_of], unit="%")
        better = sum(one.rate[0] < one.rate[1] and one.memory[0] < one.memory[1] for one in all_of)
        yield row("instances more even than at random in both", [better], published=len(all_of))
        seconds = [one.seconds for one in all_of]
        yield row("time", seconds, unit="s", published=self.limit, note="target: at most")

    def series(self, found: Answers[int, Imbalance]) -> Iterator[Series]:
        shares = np.linspace(0, 100, len(found)).tolist()
        for place, solver in enumerate(SOLVERS):
            values = sorted(one.rate[place] for answers in found.values() for one in answers)
            yield curve(solver, shares, [[value] for value in values])

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw the sorted imbalance of the rates."""
        drawing, _ = curves_drawn(
            result,
            "Imbalance of the rates",
            xlabel="instances, %",
            ylabel="(max - min) / mean, %",
            yscale="log",
        )
        return [drawing]


def _factors(problem: PartitionProblem, partition: Partition) -> tuple[float, float]:
    rate, memory = problem.sums(partition.assignment)
    return 100 * imbalance(rate), 100 * imbalance(memory)

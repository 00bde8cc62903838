"""Nexus on Blox, Figure 6: how many models of a round are on their accelerator already, and how many load.

25 models over 30 rounds. In every round some of the jobs of the round before go and others come.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tuner.experiments.blox.jobs import known_models, random_jobs
from tuner.experiments.frame.drawing import curves_drawn
from tuner.experiments.frame.experiment import Answers, Experiment, Scaled, experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.planning.rounds.placement import PlacementRule
from tuner.planning.rounds.replay import InferenceJob
from tuner.planning.rounds.simulation import replay_rounds
from tuner.report import style
from tuner.report.series import Series, curve

__all__ = ["PlacedModels"]

RULES: tuple[PlacementRule, ...] = ("locality", "random")
PUBLISHED = {"locality": 60.0, "random": 15.0}
"""% of hits, from the text."""
MODELS, JOBS, ACCELERATORS, ROUND = 25, 14, 12, 60.0
STAYING = 0.7
"""Of the jobs of a round that are in the next, with another rate."""
Hits = tuple[tuple[float, ...], int, float]
"""The hit rate of each round, %; the swaps of all; the seconds of loading."""


@experiment(
    name="blox-fig6", title="Placement by locality against random", paper="Nexus on Blox", minutes=0.2
)
class PlacedModels(Experiment[PlacementRule, Hits]):
    """Hits and swaps of both rules."""

    rounds = Scaled(30, quick=6)

    def tasks(self) -> list[PlacementRule]:
        return list(RULES)

    def measure(self, task: PlacementRule, seed: int) -> Hits:
        models = dict(list(known_models().items())[:MODELS])
        generator, jobs = np.random.default_rng(seed), list[InferenceJob]()
        now = random_jobs(generator, JOBS, list(models))
        for number in range(self.rounds):
            begin = number * ROUND
            kept = [job for job in now if number and generator.random() < STAYING]
            new = random_jobs(generator, JOBS - len(kept), list(models), begin)
            same = [job._replace(rate=job.rate * generator.uniform(0.8, 1.25)) for job in kept]
            now = [job._replace(name=f"{number}-{i}", arrival=begin) for i, job in enumerate(same + new)]
            jobs += now
        done = list(
            replay_rounds(jobs, models, accelerators=ACCELERATORS, seconds=ROUND, placement=task, seed=seed)
        )
        hits = tuple(100 * one.placed.hit_rate for one in done)
        return hits, sum(one.placed.swaps for one in done), sum(one.placed.seconds for one in done)

    def rows(self, found: Answers[PlacementRule, Hits]) -> Iterator[Row]:
        for rule, answers in found.items():
            rates = [float(np.mean(hits)) for hits, _, _ in answers]
            yield row(f"{rule}: hit rate", rates, unit="%", published=PUBLISHED[rule])
        pairs = list(zip(found["locality"], found["random"], strict=True))
        ratio = [float(np.mean(own[0])) / max(float(np.mean(other[0])), 1e-9) for own, other in pairs]
        yield row("hit rate by locality over random", ratio, published=4.0)
        fewer = [100 * (own[1] / other[1] - 1) for own, other in pairs]
        yield row("swaps by locality against random", fewer, unit="%", published=-60.0)
        faster = [100 * (own[2] / other[2] - 1) for own, other in pairs]
        yield row("time to load by locality against random", faster, unit="%")

    def series(self, found: Answers[PlacementRule, Hits]) -> Iterator[Series]:
        for rule, answers in found.items():
            yield curve(rule, range(self.rounds), list(zip(*(hits for hits, _, _ in answers), strict=True)))

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw the hit rate of each round."""
        title = f"{MODELS} models on {ACCELERATORS} accelerators"
        drawing, axis = curves_drawn(result, title, xlabel="round", ylabel="models that are there already, %")
        axis.set_ylim(bottom=0)
        return [drawing]

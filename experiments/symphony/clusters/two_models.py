"""What Table 4 and Figures 8 and 9 of Symphony share: two models, each alone on 8 accelerators."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

from tuner.cluster import Scenario
from tuner.cluster.goodput import Goodput, goodput
from tuner.experiments.frame.experiment import Answers, Experiment, Scaled
from tuner.experiments.zoo import NETWORK, TABLE_4, Setup
from tuner.report.series import Series, curve

__all__ = ["IDEAL", "SYSTEMS", "Alone", "AtGoodput", "System", "panel_name", "scenario"]

IDEAL = {"ResNet50": 5839.0, "InceptionResNetV2": 1083.0}
"""Staggered execution (symphony-analytic), requests/s."""

Answer = TypeVar("Answer")


class System(NamedTuple):
    """A policy with its options."""

    policy: str
    options: dict[str, Any]
    frontends: int = 1


SYSTEMS = {
    "symphony": System("symphony", {}),
    "nexus": System("nexus", {}),
    "nexus, 8 frontends": System("nexus", {}, 8),
    "clockwork": System("clockwork", {}),
    "clockwork, nothing ahead": System("clockwork", {"schedule_ahead": 0.0}),
    "eager": System("eager", {}),
}


class Alone(NamedTuple):
    """One model alone on its accelerators, under one system."""

    model: str
    system: str


class AtGoodput(Experiment[Alone, Answer]):
    """An experiment that searches the goodput of both models under several systems, and looks at it."""

    systems: ClassVar[tuple[str, ...]] = ("symphony", "nexus", "clockwork", "eager")
    requests = Scaled(300_000, quick=10_000)
    """How many are measured, about, at the ideal rate."""

    def tasks(self) -> list[Alone]:
        """Return both models under each system."""
        return [Alone(setup.model.name, system) for setup in TABLE_4 for system in self.systems]

    @abstractmethod
    def points(
        self, setup: Setup, system: str, answers: list[Answer], /
    ) -> tuple[Sequence[float], Sequence[Sequence[float]]]:
        """Return what is drawn of a model under one system: places, and the values of each there."""

    def series(self, found: Answers[Alone, Answer]) -> Iterator[Series]:
        """Return a curve for each system, in a panel for each model."""
        for setup in TABLE_4:
            for system in self.systems:
                x, values = self.points(setup, system, found[Alone(setup.model.name, system)])
                yield curve(system, x, values, panel=panel_name(setup))

    def search(self, task: Alone, seed: int) -> Goodput:
        """Search the goodput."""
        return goodput(scenario(task, self.requests, seed), tolerance=0.002)

    def configuration(self) -> dict[str, Any]:
        """Return what is the same for all."""
        return {"requests": self.requests, "arrivals": "Poisson", "bad_rate": 0.01}


def scenario(task: Alone, requests: int, seed: int) -> Scenario:
    """Return the scenario of a model under a system, at the ideal rate."""
    setup = next(setup for setup in TABLE_4 if setup.model.name == task.model)
    system, rate = SYSTEMS[task.system], IDEAL[task.model]
    return Scenario(
        policy=system.policy,
        options=system.options,
        accelerators=setup.accelerators,
        sessions=(setup.model.session(setup.slo_ms, rate=rate),),
        network=NETWORK,
        frontends=system.frontends,
        seconds=requests / rate,
        seed=seed,
    )


def panel_name(setup: Setup) -> str:
    """Return the title of a model's panel."""
    return f"{setup.model.name}, SLO {setup.slo_ms:g} ms"

"""What Table 4 and Figures 8 and 9 of Symphony share: two models, each alone on 8 accelerators."""

from __future__ import annotations

from typing import Any, NamedTuple

from tuner.cluster import Network, Scenario, Session
from tuner.cluster.goodput import Goodput, goodput
from tuner.experiments.frame.options import Options
from tuner.experiments.zoo import TABLE_4, Setup

__all__ = ["ALLOWANCES", "SYSTEMS", "System", "Task", "panel_name", "scenario", "search", "tasks_of"]

ALLOWANCES = Network(control_ms=0.1, data_ms_per_request=0.05, response_ms=2.0)
"""What the authors' code allows for on the way to an accelerator and back; here the network takes so long."""
REQUESTS, QUICK_REQUESTS = 300_000, 10_000
"""Measured, about, at the ideal rate."""
IDEAL = {"ResNet50": 5839.0, "InceptionResNetV2": 1083.0}
"""Staggered execution (symphony-analytic), requests/s."""


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


class Task(NamedTuple):
    """One model under one system, with one seed."""

    model: str
    system: str
    requests: int
    seed: int


def scenario(task: Task) -> Scenario:
    """Return the scenario of a task, at the ideal rate."""
    setup = next(setup for setup in TABLE_4 if setup.model.name == task.model)
    system, rate = SYSTEMS[task.system], IDEAL[task.model]
    session = Session(
        name=setup.model.name,
        alpha_ms=setup.model.alpha_ms,
        beta_ms=setup.model.beta_ms,
        slo_ms=setup.slo_ms,
        rate=rate,
    )
    return Scenario(
        policy=system.policy,
        options=system.options,
        accelerators=setup.accelerators,
        sessions=(session,),
        network=ALLOWANCES,
        frontends=system.frontends,
        seconds=task.requests / rate,
        seed=task.seed,
    )


def search(task: Task) -> Goodput:
    """Find the goodput of a task."""
    return goodput(scenario(task), tolerance=0.002)


def tasks_of(options: Options, systems: tuple[str, ...]) -> list[Task]:
    """Return a task for each model, system and seed."""
    requests = QUICK_REQUESTS if options.quick else REQUESTS
    return [
        Task(setup.model.name, system, requests, seed)
        for setup in TABLE_4
        for system in systems
        for seed in range(options.seeds)
    ]


def panel_name(setup: Setup) -> str:
    """Return what the panel of a model is called."""
    return f"{setup.model.name}, SLO {setup.slo_ms:g} ms"

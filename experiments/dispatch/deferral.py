"""How long a batch should wait for further requests: symphony's deferrals beside eager, on random clusters.

The dispatcher waits a part of the way to the latest moment at which a batch can be sent. This says which part
serves the most: in virtual time, on clusters whose models, SLOs, loads and machines are drawn at random. A
seed is a cluster, so run it with ``--seeds 80`` or more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tuner.cluster.goodput import goodput
from tuner.cluster.scenario import Scenario
from tuner.experiments.frame.experiment import Answers, Experiment, Scaled, experiment
from tuner.experiments.frame.result import Row, row

__all__ = ["Deferral", "DispatchDeferral", "drawn"]

DEFERRALS = (0.0, 0.05, 0.1, 0.15, 0.25, 0.5)
BURSTINESS = (1.0, 2.0, 4.0, 8.0)
"""Squared coefficients of variation of the gaps between requests."""
NOISE = (0.05, 0.15, 0.3)
ACCELERATORS = (1, 2, 2, 4, 8)
NETWORK = {"control_ms": 0.7, "data_ms_per_request": 0.1, "response_ms": 1.0}
"""About that of the dispatcher before a Triton on the same machine."""
BATCH = 32
LEAST = 1.0
"""requests/s that a policy counts as serving at least: there must be a logarithm."""


class Deferral(NamedTuple):
    """A way to form batches."""

    policy: str
    deferral: float = 0.0

    def __str__(self) -> str:
        return self.policy if self.policy == "eager" else f"{self.policy}, deferral {self.deferral:g}"


EAGER = Deferral("eager")


@experiment(
    name="dispatch-deferral",
    title="How long a batch should wait: symphony's deferrals beside eager on random clusters",
    minutes=2,
    shown=20,
)
class DispatchDeferral(Experiment[Deferral, float]):
    """The goodput of every cluster under every deferral."""

    seconds = Scaled(60.0, quick=5.0)

    def tasks(self) -> list[Deferral]:
        return [EAGER, *(Deferral("symphony", deferral) for deferral in DEFERRALS)]

    def measure(self, task: Deferral, seed: int) -> float:
        return goodput(drawn(task, seed, self.seconds)).rate

    def rows(self, found: Answers[Deferral, float]) -> Iterator[Row]:
        for task, rates in found.items():
            if task != EAGER:
                yield from _rows(task, np.maximum(rates, LEAST), np.maximum(found[EAGER], LEAST))

    def configuration(self) -> dict[str, Any]:
        return {"seconds": self.seconds, "network": NETWORK, "seeds": "each is a cluster"}


def drawn(task: Deferral, seed: int, seconds: float) -> Scenario:
    """Draw a cluster with one to five models, whose rates have fixed proportions.

    Args:
        task: How it forms batches.
        seed: Of the cluster, and of its requests.
        seconds: How long is measured.
    """
    rng = np.random.default_rng(seed)
    burstiness = float(rng.choice(BURSTINESS))
    accelerators, noise = int(rng.choice(ACCELERATORS)), float(rng.choice(NOISE))
    return Scenario.model_validate(
        {
            "policy": task.policy,
            "options": {} if task == EAGER else {"deferral": task.deferral},
            "accelerators": accelerators,
            "sessions": [_session(rng, number, burstiness) for number in range(int(rng.integers(1, 6)))],
            "network": NETWORK,
            "noise": noise,
            "seconds": seconds,
            "seed": seed,
        }
    )


def _session(rng: np.random.Generator, number: int, burstiness: float) -> dict[str, Any]:
    beta = float(np.exp(rng.uniform(np.log(0.5), np.log(15.0))))
    alpha = beta * float(np.exp(rng.uniform(np.log(0.03), 0.0)))
    return {
        "name": f"model-{number}",
        "alpha_ms": alpha,
        "beta_ms": beta,
        "slo_ms": 2.0 + (alpha + beta) * float(rng.uniform(4.0, 14.0)),
        "rate": float(rng.uniform(20.0, 100.0)),
        "max_batch": BATCH,
        "arrival": "poisson" if burstiness == 1.0 else f"gamma:{1.0 / burstiness:g}",
    }


def _rows(task: Deferral, rates: np.ndarray, eager: np.ndarray) -> Iterator[Row]:
    """Compare the goodput of a policy with that of eager, cluster by cluster."""
    ratios = rates / eager
    mean = float(np.exp(np.log(ratios).mean()))
    yield Row(id=f"{task}: goodput over eager's, geometric mean", measured=mean)
    yield row(f"{task}: goodput over eager's", ratios.tolist())
    worst = float(np.quantile(ratios, 0.1))
    yield Row(id=f"{task}: the same, worst tenth", measured=worst)

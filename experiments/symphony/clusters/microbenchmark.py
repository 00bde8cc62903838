"""Symphony, Table 3: the grid of clusters on which scheduling policies are compared, sampled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from tuner.cluster import simulate
from tuner.cluster.goodput import Good, goodput
from tuner.cluster.scenario import Scenario
from tuner.experiments.zoo import GTX_1080TI, Model, model, zoo_scenario

__all__ = [
    "MIXED",
    "ClusterPoint",
    "cases",
    "grid",
    "keeps",
    "line",
    "mixed",
    "points",
    "rate",
    "sample",
    "scenario",
]

MODELS = ("DenseNet121", "InceptionV3", "ResNet50V2", "VGG16", "Xception", "BERT")
COUNTS = (8, 16, 24, 32, 48, 64)
RATIOS = (1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0)
SLOS = (20, 25, 30, 40, 50)
SHAPES = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
MIXED = "mixed"
"""Instead of a model: the 35 models of Table 5, each with its own SLO."""
SAMPLED = 1260
"""A sixth of the grid."""
SAMPLE_SEED = 4
LIMIT = 0.01
"""Share of late and dropped requests that a goodput may have."""
LEAST = 0.5
"""s that are measured at least."""


class ClusterPoint(NamedTuple):
    """One cluster of the grid."""

    model: str
    """Of which there are ``number`` equal ones; or ``MIXED``."""
    number: int
    """Models."""
    ratio: float
    """Accelerators per model."""
    slo_ms: int
    """0: each its own."""
    shape: float
    """Of the gamma distribution of the gaps between arrivals; 1 is Poisson, less is burstier."""

    @property
    def accelerators(self) -> int:
        """How many; the ratio is not always possible."""
        return max(1, round(self.ratio * self.number))

    @property
    def models(self) -> tuple[Model, ...]:
        """The unlike models."""
        return GTX_1080TI if self.model == MIXED else (model(self.model, GTX_1080TI),)


def grid() -> list[ClusterPoint]:
    """Return all clusters of Table 3."""
    return [ClusterPoint(*values) for values in product(MODELS, COUNTS, RATIOS, SLOS, SHAPES)]


def sample(size: int, seed: int = SAMPLE_SEED) -> list[ClusterPoint]:
    """Return clusters of Table 3 drawn without replacement, as many of each model, in the grid's order."""
    generator = np.random.default_rng(seed)
    chosen = []
    for name in MODELS:
        ours = [point for point in grid() if point.model == name]
        places = generator.choice(len(ours), size // len(MODELS), replace=False)
        chosen += [ours[place] for place in sorted(places)]
    return chosen


def mixed(ratios: tuple[float, ...] = RATIOS, shapes: tuple[float, ...] = (1.0, 0.3)) -> list[ClusterPoint]:
    """Return clusters of the 35 models of Table 5."""
    return [ClusterPoint(MIXED, len(GTX_1080TI), ratio, 0, shape) for shape, ratio in product(shapes, ratios)]


def cases() -> Iterator[ClusterPoint]:
    """Yield clusters that differ in burstiness only, for the curves."""
    for ratio, shape in product((1.0, 2.0, 4.0), SHAPES):
        yield ClusterPoint("DenseNet121", 32, ratio, 30, shape)
    for shape in SHAPES:
        yield ClusterPoint("DenseNet121", 32, 2.0, 50, shape)
    for shape in SHAPES:
        yield ClusterPoint("BERT", 32, 2.0, 30, shape)


def points(quick: bool) -> list[ClusterPoint]:
    """Return all clusters of the sample and the mixed zoos, or of a quick run."""
    if quick:
        dense = ClusterPoint("DenseNet121", 8, 2.0, 30, 1.0)
        return [dense, ClusterPoint("BERT", 8, 2.0, 30, 1.0), *mixed((2.0,), (1.0,))]
    return [*sample(SAMPLED), *mixed()]


def scenario(
    point: ClusterPoint, policy: str, options: Mapping[str, Any], *, requests: float, seed: int
) -> Scenario:
    """Return a cluster under a policy.

    Args:
        point: The cluster; all models are equally popular.
        policy: Its name.
        options: Of the policy.
        requests: About how many arrive in the measured part.
        seed: Of the arrivals.
    """
    copies = 1 if point.model == MIXED else point.number
    sessions = tuple(
        one.session(point.slo_ms or None, arrival=f"gamma:{point.shape}", copies=copies)
        for one in point.models
    )
    return zoo_scenario(
        requests,
        least=LEAST,
        policy=policy,
        options=dict(options),
        accelerators=point.accelerators,
        sessions=sessions,
        warmup_seconds=0.5,
        seed=seed,
    )


def rate(
    point: ClusterPoint,
    policy: str,
    options: Mapping[str, Any],
    *,
    requests: float,
    seed: int,
    tolerance: float = 0.005,
) -> float:
    """Return the goodput, requests/s.

    At most 1 % of the requests may be bad. Of equal models all requests together count, which tells the bad
    rate of one of them best; of unlike ones those of each model count.
    """
    cluster = _loaded(point, policy, options, requests, seed)
    return goodput(cluster, good=Good(LIMIT, _alike(point)), tolerance=tolerance, least_requests=1).rate


def keeps(
    point: ClusterPoint, policy: str, options: Mapping[str, Any], total: float, *, requests: float, seed: int
) -> bool:
    """Return whether a total rate is within the limit up to which :func:`rate` searches."""
    outcome = simulate(_loaded(point, policy, options, requests, seed).model_copy(update={"rate": total}))
    return (outcome.bad_rate if _alike(point) else outcome.worst_bad_rate) <= LIMIT


def line(point: ClusterPoint, **figures: object) -> str:
    """Return one line of text about a cluster, to be stored: there are many."""
    slo = f", {point.slo_ms} ms" if point.slo_ms else ""
    name = f"{point.number} x {point.model}{slo}, gamma({point.shape:g}) on {point.accelerators}"
    return "; ".join([name, *(f"{key} {value}" for key, value in figures.items())])


def _alike(point: ClusterPoint) -> bool:
    return point.model != MIXED


def _loaded(
    point: ClusterPoint, policy: str, options: Mapping[str, Any], requests: float, seed: int
) -> Scenario:
    """Return the scenario of a cluster; of unlike models each must have its share of the requests."""
    return scenario(point, policy, options, requests=requests if _alike(point) else 3 * requests, seed=seed)

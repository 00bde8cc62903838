"""Symphony, Table 3: the grid of clusters on which scheduling policies are compared, sampled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from tuner.envs.simulator.cluster.goodput import capacity, goodput
from tuner.envs.simulator.cluster.scenario import Network, Scenario, Session
from tuner.experiments.zoo import GTX_1080TI, Model, model

__all__ = ["MIXED", "NETWORK", "Point", "cases", "grid", "mixed", "points", "rate", "sample", "scenario"]

NETWORK = Network(control_ms=0.1, data_ms_per_request=0.05, response_ms=2.0)
"""What the paper's scheduler allows for."""
MODELS = ("DenseNet121", "InceptionV3", "ResNet50V2", "VGG16", "Xception", "BERT")
COUNTS = (8, 16, 24, 32, 48, 64)
RATIOS = (1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0)
SLOS = (20, 25, 30, 40, 50)
SHAPES = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
MIXED = "mixed"
"""Instead of a model: the 35 models of Table 5, each with its own SLO."""
SAMPLED = 60
SAMPLE_SEED = 4
LEAST = 0.5
"""s that are measured at least."""


class Point(NamedTuple):
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


def grid() -> list[Point]:
    """Return all clusters of Table 3."""
    return [Point(*values) for values in product(MODELS, COUNTS, RATIOS, SLOS, SHAPES)]


def sample(size: int, seed: int = SAMPLE_SEED) -> list[Point]:
    """Return clusters of Table 3 drawn without replacement, as many of each model, in the grid's order."""
    generator = np.random.default_rng(seed)
    chosen = []
    for name in MODELS:
        ours = [point for point in grid() if point.model == name]
        places = generator.choice(len(ours), size // len(MODELS), replace=False)
        chosen += [ours[place] for place in sorted(places)]
    return chosen


def mixed(ratios: tuple[float, ...] = RATIOS, shapes: tuple[float, ...] = (1.0, 0.3)) -> list[Point]:
    """Return clusters of the 35 models of Table 5."""
    return [Point(MIXED, len(GTX_1080TI), ratio, 0, shape) for shape, ratio in product(shapes, ratios)]


def cases() -> Iterator[Point]:
    """Yield clusters that differ in burstiness only, for the curves."""
    for ratio, shape in product((1.0, 2.0, 4.0), SHAPES):
        yield Point("DenseNet121", 32, ratio, 30, shape)
    for shape in SHAPES:
        yield Point("DenseNet121", 32, 2.0, 50, shape)
    for shape in SHAPES:
        yield Point("BERT", 32, 2.0, 30, shape)


def points(quick: bool, *, curves: bool = True) -> list[Point]:
    """Return all clusters that are measured: the sample, the mixed zoos and, if wanted, the curves' own."""
    if quick:
        dense = Point("DenseNet121", 8, 2.0, 30, 1.0)
        return [dense, Point("BERT", 8, 2.0, 30, 1.0), *mixed((2.0,), (1.0,))]
    return list(dict.fromkeys([*sample(SAMPLED), *mixed(), *(cases() if curves else ())]))


def scenario(
    point: Point, policy: str, options: Mapping[str, Any], *, requests: float, seed: int
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
        Session(
            name=one.name,
            alpha_ms=one.alpha_ms,
            beta_ms=one.beta_ms,
            slo_ms=float(point.slo_ms or one.slo_ms),
            arrival=f"gamma:{point.shape}",
            copies=copies,
        )
        for one in point.models
    )
    empty = Scenario(
        policy=policy,
        options=dict(options),
        accelerators=point.accelerators,
        rate=1000.0,
        sessions=sessions,
        network=NETWORK,
        warmup_seconds=0.5,
        seed=seed,
    )
    return empty.model_copy(update={"seconds": max(requests / capacity(empty), LEAST)})


def rate(
    point: Point,
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
    alike = point.model != MIXED
    cluster = scenario(point, policy, options, requests=requests if alike else 3 * requests, seed=seed)
    return goodput(cluster, overall=alike, tolerance=tolerance, least_requests=1).rate

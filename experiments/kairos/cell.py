"""What all figures of Kairos share: pools of mixed instances, and what one serves under a policy."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tuner.cluster.goodput import goodput
from tuner.cluster.scenario import Scenario
from tuner.cluster.threshold import climb_threshold
from tuner.experiments.frame.experiment import Experiment, Scaled
from tuner.planning.pools.bound import Terms, bounds, make_terms
from tuner.planning.pools.catalogue import InstanceType, Offers, make_offers
from tuner.planning.pools.choice import best_homogeneous, choose
from tuner.planning.pools.paper import BUDGET, MODELS, QUANTILE, SLOS, paper_catalogue
from tuner.planning.pools.pool import pools_within, ranked
from tuner.workload.sizes import parse_sizes

__all__ = [
    "GAUSSIAN",
    "LABELS",
    "POLICIES",
    "UNIT",
    "Cell",
    "CellExperiment",
    "Pool",
    "PoolExperiment",
    "PoolSetting",
    "PoolSpace",
    "homogeneous",
    "make_space",
    "name_of",
]

LABELS = {"dien": "DIEN", "mtwnd": "MT-WND", "ncf": "NCF", "rm2": "RM2", "wnd": "WND"}
"""The models as the paper names them, in its order."""
POLICIES = ("kairos", "kairos, refusing", "ribbon", "drs", "clkwrk", "clkwrk, refusing", "oracle")
"""Distribution policies; that two of them may refuse requests which cannot be in time is ours."""
CHANGES: dict[str, dict[str, float | bool]] = {"refusing": {"refuse": True}, "believing": {"spread": 0.0}}
"""Options by the word that follows a policy's name. One that believes does not weigh how far its predictions
are off."""
GAUSSIAN = "gaussian:300,120"
"""Sizes after the change of figures 12 and 16; the paper does not say which. All sizes up to 1000 come."""

UNIT = "queries/s"
"""Of goodputs in stored rows: requests/s. The paper calls a request a query, an SLO a QoS target, and a
goodput the allowable throughput."""

Task = TypeVar("Task")
Answer = TypeVar("Answer")
Pool = tuple[int, ...]
"""Instances of g4dn.xlarge, c5n.2xlarge, r5n.large and t3.xlarge."""


class PoolSetting(NamedTuple):
    """Under what a pool is measured; the paper's, unless said otherwise."""

    model: str
    sizes: str = "paper"
    arrival: str = "poisson"
    stretch: float = 1.0
    """Of the SLO."""
    wealth: float = 1.0
    """Of the budget, and of how many instances of each type can be had."""
    noise: float = 0.0
    """Standard deviation of execution times, relative."""
    prediction_noise: float = 0.0
    """The same of Kairos's predictions, with exact execution times."""
    requests: int = 20_000
    """Per rate that is tried; as many as in the paper's code."""


class Cell(NamedTuple):
    """What is measured."""

    setting: PoolSetting
    pool: Pool
    policy: str = "kairos"


class PoolSpace(NamedTuple):
    """All pools that the budget buys in a setting, with what the bounds say of them."""

    setting: PoolSetting
    offers: Offers
    terms: Terms
    pools: np.ndarray  # (n, 4)
    bound: np.ndarray  # (n,) requests/s, eq. 15
    order: np.ndarray  # (n,) highest bound first
    chosen: Pool
    same: Pool
    """The best homogeneous pool."""
    scale: float
    """By which its goodput grows if the whole budget is used (section 8.1)."""

    def highest(self, count: int | None = None) -> list[Pool]:
        """Return the pools with the highest bounds, the highest first; all of them if ``count`` is None."""
        return [tuple(pool) for pool in self.pools[self.order[:count]].tolist()]


@cache
def make_space(setting: PoolSetting) -> PoolSpace:
    """Return the pools of a setting, and Kairos's choice among them."""
    sizes = parse_sizes(setting.sizes)
    offers = make_offers(_types(setting), setting.model, sizes)
    terms = make_terms(offers.latency, _slo(setting), sizes.probability)
    budget = BUDGET * setting.wealth
    pools = pools_within(offers.price, offers.max_count, terms.base, budget)
    bound = bounds(pools, terms)
    order = ranked(bound, pools @ offers.price)
    chosen = pools[choose(pools, order, terms.base).pool]
    best = best_homogeneous(offers.price, offers.max_count, terms.base_rate, budget)
    same = np.where(np.arange(offers.price.size) == best.kind, best.instances, 0)
    scale = budget / float(same @ offers.price)
    return PoolSpace(
        setting, offers, terms, pools, bound, order, tuple(chosen.tolist()), tuple(same.tolist()), scale
    )


def homogeneous(space: PoolSpace) -> Cell:
    """Return the cell of the best homogeneous pool, first come, first served; times ``space.scale``."""
    return Cell(space.setting._replace(noise=0.0, prediction_noise=0.0), space.same, "ribbon")


def name_of(pool: Pool) -> str:
    """Write a pool as the paper does."""
    return f"({', '.join(str(count) for count in pool)})"


def _slo(setting: PoolSetting) -> float:
    return SLOS[setting.model] * setting.stretch


def _types(setting: PoolSetting) -> tuple[InstanceType, ...]:
    return tuple(
        kind.model_copy(update={"max_count": int(kind.max_count * setting.wealth)})
        for kind in paper_catalogue()
    )


def _scenario(cell: Cell, seed: int) -> Scenario:
    setting = cell.setting
    types = _types(setting)
    policy, _, change = cell.policy.partition(", ")
    options: dict[str, float | bool | int] = dict(CHANGES[change]) if change else {}
    if policy == "kairos" and setting.prediction_noise:
        options |= {"prediction_noise": setting.prediction_noise, "seed": seed}
    session = {
        "name": setting.model,
        "model": setting.model,
        "slo_ms": _slo(setting) * 1e3,
        "sizes": setting.sizes,
        "arrival": setting.arrival,
    }
    return Scenario.model_validate(
        {
            "policy": policy,
            "options": options,
            "instances": [
                {"type": kind.name, "count": count} for kind, count in zip(types, cell.pool, strict=True)
            ],
            "catalogue": [kind.model_dump() for kind in types],
            "sessions": [session],
            "noise": setting.noise,
            "requests": setting.requests,
            "seed": seed,
        }
    )


class PoolExperiment(Experiment[Task, Answer]):
    """An experiment on simulated pools."""

    first_seed = 1
    requests = Scaled(20_000, quick=1_500)
    """Per rate that is tried; the first as in the paper's code."""

    def setting(self, model: str, **changes: Any) -> PoolSetting:
        """Return the paper's setting of a model, with changes."""
        return PoolSetting(model, requests=self.requests, **changes)

    def spaces(self) -> dict[str, PoolSpace]:
        """Return the pools of every model in the paper's setting."""
        return {model: make_space(self.setting(model)) for model in LABELS}

    def rate(self, cell: Cell, seed: int, at_least: float = 0.0) -> float:
        """Return the goodput, requests/s; of ``drs`` with the best threshold that climbing finds.

        Args:
            cell: What to measure.
            seed: Of the simulation.
            at_least: Requests/s; what serves less may be said to serve nothing, which is found sooner.
        """
        scenario = _scenario(cell, seed)
        if cell.policy == "drs":
            return climb_threshold(scenario).best.rate
        return goodput(scenario, at_least=at_least).rate

    def configuration(self) -> dict[str, Any]:
        """Return what all figures have in common."""
        return {
            "requests": self.requests,
            "quantile": QUANTILE,
            "slo_ms": {model: SLOS[model] * 1e3 for model in MODELS},
            "budget": BUDGET,
            "types": [kind.name for kind in paper_catalogue()],
            "sizes": "paper",
            "arrivals": "exponential gaps",
        }


class CellExperiment(PoolExperiment[Cell, float]):
    """An experiment whose tasks are cells."""

    def measure(self, cell: Cell, seed: int) -> float:
        """Return the goodput, requests/s."""
        return self.rate(cell, seed)

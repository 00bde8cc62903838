"""Kairos: the planner on catalogues that are not the paper's, against the best of all pools.

Each catalogue is random: three to six types whose speeds differ by up to eleven times and whose prices follow
the speed, more or less; lines and measured tables; budgets from one dear instance to a few. Of all pools
within the budget those are simulated whose ceiling is above what another one serves, and the best of them
again, longer and with other requests, together with the choices. None of these catalogues was looked at when
the planner's rules were made.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import mean
from typing import Any, NamedTuple

import numpy as np

from tuner.cluster.pool_trial import PoolTrial
from tuner.cluster.scenario import Scenario
from tuner.errors import InvalidInput
from tuner.experiments.frame.experiment import Answers, Experiment, Scaled, experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.planning.pools.ceiling import kept_mass
from tuner.planning.pools.planner import Order, make_order, plan_order
from tuner.planning.pools.pool import pools_within
from tuner.planning.trials import plan_by_trials
from tuner.planning.trials.candidate import rough_ceilings
from tuner.report import style
from tuner.report.series import Series, curve

__all__ = ["ForeignCatalogues"]

SIZES = ("paper", "lognormal:5.1,0.6", "gaussian:300,120", "lognormal:4,1")
MEASURED = (1, 50, 100, 200, 400, 700, 1000)
"""Items of a measured table."""
MOST_POOLS = 1000
FIRST, LAST, CLOSE, FINAL = 1000, 5000, 0.98, 6
"""Requests of the first and the second simulation, and which pools are simulated twice."""
SLACK = 1.05
"""By which a rough ceiling may be too low, generously."""
SEEDS = (901, 902)
"""Of the second simulations; a plan has seeds of its own."""


class Choice(NamedTuple):
    """What came of one catalogue."""

    share: float
    """What the chosen pool serves over what the best of all serves."""
    paper: float | None
    """The same of the paper's rule; None if it finds no pool."""
    alone: float
    """The same of the best pool of one type."""
    pools: int
    tried: int
    seconds: float


@experiment(
    name="kairos-foreign",
    title="The planner on catalogues that are not the paper's",
    paper="Kairos",
    minutes=10,
    repeated=False,
)
class ForeignCatalogues(Experiment[int, Choice]):
    """Forty random catalogues."""

    catalogues = Scaled(40, quick=3)

    def tasks(self) -> range:
        return range(self.catalogues)

    def measure(self, catalogue: int, seed: int, /) -> Choice:  # noqa: ARG002 - a catalogue is the seed
        scenario = make_scenario(catalogue)
        order = make_order(scenario)
        trial = PoolTrial(scenario, order.types)
        trial.goodput((1,) * len(order.types))  # compiled functions are loaded before the clock starts
        begin = time.process_time()
        plan = plan_by_trials(order, trial)
        seconds = time.process_time() - begin
        chosen = tuple(plan.chosen.counts.values())
        paper = _paper_choice(order)
        first = PoolTrial(scenario.model_copy(update={"seed": SEEDS[0] + 50}), order.types)
        finalists = _best_of_all(order, first)
        rates = {pool: _served(scenario, order, pool) for pool in {*finalists, chosen, paper} if pool}
        best = max(rates.values())
        kind = plan.homogeneous
        alone = tuple(kind.instances if place == kind.kind else 0 for place in range(len(order.offers.names)))
        return Choice(
            share=rates[chosen] / best,
            paper=rates[paper] / best if paper else None,
            alone=_served(scenario, order, alone) / best,
            pools=plan.pools,
            tried=plan.tried,
            seconds=seconds,
        )

    def rows(self, found: Answers[int, Choice]) -> Iterator[Row]:
        choices = [answers[0] for answers in found.values()]
        for name, shares in _shares(choices).items():
            yield row(f"{name}: over the best of all, mean", [100 * mean(shares)], unit="%")
            yield row(f"{name}: over the best of all, least", [100 * min(shares)], unit="%")
        yield row("pools simulated, median", [float(np.median([one.tried for one in choices]))])
        yield row("time of a plan on a core, longest", [max(one.seconds for one in choices)], unit="s")

    def series(self, found: Answers[int, Choice]) -> list[Series]:
        """The shares of each rule, the least first."""
        shares = _shares([answers[0] for answers in found.values()])
        return [
            curve(name, range(1, len(some) + 1), [[100 * share] for share in sorted(some)])
            for name, some in shares.items()
        ]

    def configuration(self) -> dict[str, Any]:
        return {"catalogues": self.catalogues, "requests": [FIRST, LAST], "most_pools": MOST_POOLS}

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw the shares of each rule in order."""
        figure, axes = style.figure("The chosen pool against the best of all, 40 catalogues", size=(6.4, 3.8))
        panel = axes[0, 0]
        style.curves(panel, result.series)
        panel.set(xlabel="catalogues, the worst first", ylabel="goodput, % of the best pool's", ylim=(0, 104))
        style.legend(panel, loc="lower right")
        return [style.Drawing(figure)]


def make_scenario(catalogue: int) -> Scenario:
    """Return a random catalogue with a session and a budget."""
    generator = np.random.default_rng([2026, catalogue])
    slo = float(np.round(np.exp(generator.uniform(np.log(10), np.log(500))), 1))
    longest = slo * generator.uniform(0.15, 0.9)  # ms of 1000 items on the first type
    slowness = np.concatenate(
        [[1.0], np.exp(generator.uniform(np.log(0.7), np.log(8), generator.integers(2, 6)))]
    )
    types = []
    for index, slow in enumerate(slowness.tolist()):
        beta = longest * slow * generator.uniform(0.02, 0.3)
        alpha = (longest * slow - beta) / 1000
        price = slow ** -generator.uniform(0.8, 1.2) * generator.uniform(0.35, 0.65)
        profile: dict[Any, float] = {"alpha_ms": alpha, "beta_ms": beta}
        if generator.random() < 0.5:
            profile = {size: (alpha * size + beta) * generator.uniform(0.95, 1.05) for size in MEASURED}
        types.append(
            {
                "name": f"type{index}",
                "price": round(price, 4),
                "max_count": int(generator.integers(3, 16)),
                "profile": {"model": profile},
            }
        )
    budget = types[0]["price"] * np.exp(generator.uniform(np.log(1.05), np.log(6)))
    session = {"name": "s", "model": "model", "slo_ms": slo, "sizes": SIZES[generator.integers(len(SIZES))]}
    fields = {"policy": "kairos", "catalogue": types, "sessions": [session]}
    while True:
        scenario = Scenario.model_validate({**fields, "budget": round(float(budget), 3)})
        if len(_all_pools(make_order(scenario))) <= MOST_POOLS:
            return scenario
        budget *= 0.9


def _all_pools(order: Order) -> np.ndarray:
    offers = order.offers
    pools = pools_within(offers.price, offers.max_count, np.ones(offers.price.size, bool), order.budget)
    return pools[pools.any(axis=1)]


def _best_of_all(order: Order, trial: PoolTrial) -> list[tuple[int, ...]]:
    """Return the pools that serve most of all, after a simulation of each that might."""
    pools = _all_pools(order)
    mass = kept_mass(order.sizes.probability, order.session.quantile)
    ceiling = rough_ceilings(pools, order.offers.latency, order.session.slo, mass) * SLACK
    best, rates = 0.0, dict[tuple[int, ...], float]()
    for place in np.argsort(-ceiling, kind="stable").tolist():
        if ceiling[place] <= best:
            break
        pool = tuple(pools[place].tolist())
        rates[pool] = trial(pool, FIRST, CLOSE * best)
        best = max(best, rates[pool])
    return sorted(rates, key=lambda pool: -rates[pool])[:FINAL]


def _paper_choice(order: Order) -> tuple[int, ...]:
    """Return the pool by the paper's rule; an empty one if it finds none."""
    try:
        return tuple(plan_order(order).chosen.counts.values())
    except InvalidInput:
        return ()


def _served(scenario: Scenario, order: Order, pool: tuple[int, ...]) -> float:
    """Return the goodput of a pool over the long simulations, requests/s."""
    trials = (PoolTrial(scenario.model_copy(update={"seed": seed}), order.types) for seed in SEEDS)
    return mean(trial(pool, LAST, 0.0) for trial in trials)


def _shares(choices: list[Choice]) -> dict[str, list[float]]:
    """Return the shares of each rule."""
    return {
        "simulated": [one.share for one in choices],
        "paper": [one.paper for one in choices if one.paper is not None],
        "one type": [one.alone for one in choices],
    }

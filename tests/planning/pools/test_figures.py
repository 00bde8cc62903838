"""The paper's figures: pools chosen from bounds alone, and the bound over the cost-scaled homogeneous pool.

The published numbers come from the authors' own terms (allocator_profile.json of
github.com/boringlee24/hpdc23-kairos, MIT), which they measured. With those terms they are reached to the
digit; with the lines of our catalogue within 3 %, and with the measured latency table within 1.6 %.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from tuner.cluster.scenario import Scenario, Session
from tuner.planning.pools.bound import Terms, bounds
from tuner.planning.pools.catalogue import InstanceType, make_offers
from tuner.planning.pools.choice import choose
from tuner.planning.pools.paper import BUDGET, INSTANCES, MODELS, SLOS, paper_catalogue
from tuner.planning.pools.planner import plan_instances, plan_scenario
from tuner.planning.pools.pool import pools_within, ranked
from tuner.workload.sizes import paper_sizes

PUBLISHED = {
    "dien": ((2, 0, 9, 0), 1.46),
    "mtwnd": ((2, 0, 8, 1), 1.28),
    "ncf": ((1, 0, 13, 0), 1.75),
    "rm2": ((1, 0, 13, 0), 2.02),
    "wnd": ((1, 0, 13, 0), 1.33),
}
# Q_b of the GPU; then of c5n.2xlarge, r5n.large, t3.xlarge: f, the part of the GPU's time that the small
# requests take, and Q_a by the type whose cut-off is used.
AUTHORS = {
    "dien": (
        105.56,
        [
            (0.873, 0.808, [69.52, 0, 0]),
            (0.857, 0.788, [61.44, 63.06, 0]),
            (0.741, 0.657, [32.76, 33.52, 41.45]),
        ],
    ),
    "mtwnd": (
        167.36,
        [
            (0.934, 0.877, [100.18, 0, 0]),
            (0.877, 0.792, [82.47, 89.4, 0]),
            (0.745, 0.635, [41.94, 45.39, 57.27]),
        ],
    ),
    "ncf": (
        861.33,
        [
            (0.985, 0.973, [690.13, 0, 0]),
            (0.967, 0.942, [486.14, 499.0, 0]),
            (0.858, 0.756, [317.16, 335.46, 407.0]),
        ],
    ),
    "rm2": (
        15.04,
        [
            (0.989, 0.959, [10.73, 0, 0]),
            (0.984, 0.941, [10.27, 10.39, 0]),
            (0.837, 0.614, [4.74, 4.83, 6.39]),
        ],
    ),
    "wnd": (
        246.18,
        [
            (0.971, 0.94, [126.04, 0, 0]),
            (0.951, 0.903, [102.08, 106.1, 0]),
            (0.804, 0.7, [52.74, 54.11, 67.98]),
        ],
    ),
}
PRICE = np.array([price for price, _ in INSTANCES.values()])
MOST = np.array([most for _, most in INSTANCES.values()])
GPU = np.array([True, False, False, False])
DATA = Path(__file__).parents[4] / "shared" / "data" / "kairos" / "latency_table.csv"


def authors_terms(model: str) -> Terms:
    """Their terms in our form; theirs does not tell the cut-offs, nor needs them."""
    base_rate, types = AUTHORS[model]
    share = np.array([1.0, *(f for f, _, _ in types)])
    time = np.array([0.0, *(part for _, part, _ in types)])
    large, small = np.zeros((4, 4)), np.zeros((4, 4))
    large[0, 1:] = base_rate * (1 - share[1:]) / (1 - time[1:])
    small[1:, 1:] = [rates for _, _, rates in types]
    return Terms(GPU, np.zeros(4, dtype=int), share, np.array([base_rate, 0, 0, 0]), large, small)


@pytest.mark.parametrize("model", MODELS)
def test_the_authors_terms_give_the_published_pools_and_gains(model: str) -> None:
    """Eq. 14 and 15 and the choice of section 5.2, on their numbers."""
    pools = pools_within(PRICE, MOST, GPU, BUDGET)
    bound = bounds(pools, authors_terms(model))
    chosen = choose(pools, ranked(bound, pools @ PRICE), GPU).pool
    gain = bound[chosen] / (AUTHORS[model][0] * BUDGET / PRICE[0])

    assert len(pools) == 331
    assert (tuple(pools[chosen].tolist()), round(gain, 2)) == PUBLISHED[model]


@pytest.mark.parametrize("model", MODELS)
def test_the_shipped_catalogue_gives_the_published_pools(model: str) -> None:
    """And the gains within 3 %, as alpha and beta are lines through measured times."""
    session = Session(name=model, model=model, slo_ms=SLOS[model] * 1e3, sizes="paper")

    plan = plan_scenario(Scenario(sessions=[session], budget=BUDGET))  # type: ignore[arg-type]

    pool, gain = PUBLISHED[model]
    assert plan.pools == 331
    assert tuple(plan.chosen.counts.values()) == pool
    assert plan.gain == pytest.approx(gain, rel=0.03)


@pytest.mark.parametrize("model", MODELS)
def test_the_measured_table_gives_the_published_pools(model: str) -> None:
    """And the gains within 1.6 %."""
    if not DATA.exists():
        pytest.skip("the measured latency table is not part of the project")
    tables: defaultdict[str, dict[int, float]] = defaultdict(dict)
    with DATA.open() as file:
        for row in csv.DictReader(file):
            if row["model"] == model:
                tables[row["instance"]][int(row["batch"])] = float(row["mean_ms"])
    types = [
        InstanceType(name=t.name, price=t.price, max_count=t.max_count, profile={model: tables[t.name]})  # type: ignore[dict-item]
        for t in paper_catalogue()
    ]
    session, sizes = Session(name=model, model=model, slo_ms=SLOS[model] * 1e3, sizes="paper"), paper_sizes()

    plan = plan_instances(session, sizes, make_offers(types, model, sizes), BUDGET)

    pool, gain = PUBLISHED[model]
    assert tuple(plan.chosen.counts.values()) == pool
    assert plan.gain == pytest.approx(gain, rel=0.016)


@pytest.mark.parametrize("model", MODELS)
def test_eq_15_is_close_below_what_no_policy_exceeds(model: str) -> None:
    """At most 9 % above it, for the ten highest bounds, if every request must meet the SLO."""
    session = Session(name=model, model=model, slo_ms=SLOS[model] * 1e3, sizes="paper", quantile=0.999999)

    plan = plan_scenario(Scenario(sessions=[session], budget=BUDGET))  # type: ignore[arg-type]

    assert all(1 <= pool.ceiling / pool.bound <= 1.09 for pool in plan.top[:10])

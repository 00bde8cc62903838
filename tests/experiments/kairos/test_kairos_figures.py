"""Kairos's figures: what is measured for them, and what their rows say."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from tests.experiments.quick import quick
from tuner.errors import InvalidInput
from tuner.experiments.frame.options import ExperimentOptions
from tuner.experiments.kairos import fig12, pools
from tuner.experiments.kairos.cell import (
    LABELS,
    Cell,
    Pool,
    PoolExperiment,
    PoolSetting,
    homogeneous,
    make_space,
    name_of,
)
from tuner.experiments.kairos.fig1 import MixedPools
from tuner.experiments.kairos.fig8 import GainAtEqualCost
from tuner.experiments.kairos.fig10 import PoolsTried
from tuner.experiments.kairos.fig11 import RivalSearches
from tuner.experiments.kairos.fig12 import ReactionToSizes
from tuner.experiments.kairos.fig13 import HighestBounds
from tuner.experiments.kairos.fig14 import BoundsByPolicy
from tuner.experiments.kairos.fig15 import GainByBudget
from tuner.experiments.kairos.fig16 import GainUnderNoise
from tuner.experiments.kairos.gain import gain_of, gain_rows
from tuner.experiments.kairos.pools import EveryPool
from tuner.experiments.kairos.search import until_best
from tuner.planning.pools.search import Evaluation, SearchResult

NEAR = 0.8
"""Of its bound, that a pool serves in these tests."""


def pretended(_: PoolExperiment[Any, Any], cell: Cell, seed: int, at_least: float = 0.0) -> float:
    """A throughput below the bound, without simulating anything."""
    share = {"kairos": NEAR, "oracle": 1.02}.get(cell.policy, 0.5)
    return share * bounds_of(cell.setting)[cell.pool] * (1 + 0.001 * seed)


@cache
def bounds_of(setting: PoolSetting) -> dict[Pool, float]:
    """The bound of every pool."""
    space = make_space(setting)
    return dict(zip(map(tuple, space.pools.tolist()), space.bound.tolist(), strict=True))


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PoolExperiment, "rate", pretended)


def test_a_space_is_that_of_the_paper() -> None:
    """331 pools, four GPUs alone scaled up to 2.5 $/h, and the pool that the paper chooses."""
    space = make_space(PoolSetting("rm2"))

    assert len(space.pools) == 331
    assert (space.chosen, space.same) == ((1, 0, 13, 0), (4, 0, 0, 0))
    assert space.scale == pytest.approx(2.5 / (4 * 0.526))
    assert name_of(space.chosen) == "(1, 0, 13, 0)"
    assert homogeneous(space).policy == "ribbon"


def test_settings_change_what_they_say() -> None:
    """Four times the money buys four times the instances; a higher target lets more types keep it."""
    rich, patient = make_space(PoolSetting("rm2", wealth=4.0)), make_space(PoolSetting("rm2", stretch=1.2))
    plain = make_space(PoolSetting("rm2"))

    assert len(rich.pools) > 20 * len(plain.pools)
    assert max(rich.pools[:, 0]) == 19
    assert (patient.terms.cutoff >= plain.terms.cutoff).all()


@pytest.mark.parametrize(
    "policy",
    ["kairos", "kairos, refusing", "kairos, believing", "ribbon", "drs", "clkwrk, refusing", "oracle"],
)
@pytest.mark.compiled
def test_a_cell_is_measured(policy: str) -> None:
    """Every policy of the figures serves something, and no more than the bound and a little."""
    setting = PoolSetting("rm2", requests=30 if numba.config.DISABLE_JIT else 150)  # type: ignore[attr-defined]

    rate = quick(BoundsByPolicy).rate(Cell(setting, (2, 0, 3, 0), policy), 1)

    assert rate > 0
    assert rate < 90 or setting.requests < 100


def test_gains_are_ratios_of_equal_cost() -> None:
    """Kairos's throughput over the homogeneous one, scaled, per seed."""
    space = make_space(PoolSetting("rm2"))
    cells = (Cell(space.setting, (1, 0, 13, 0), "kairos"), homogeneous(space))

    found = gain_of(space, {cells[0]: [30.0, 60.0], cells[1]: [10.0, 10.0]})

    assert found.ratios == [pytest.approx(3 / space.scale), pytest.approx(6 / space.scale)]
    rows = gain_rows(found, "RM2", 2.0)
    assert [row.id for row in rows] == ["RM2: gain", "RM2: kairos", "RM2: homogeneous, scaled"]
    assert rows[0].published == 2.0
    assert rows[0].measured == pytest.approx(np.median(found.ratios), abs=1e-5)


@pytest.mark.usefixtures("pretend")
def test_figure_8_has_the_gain_of_every_model() -> None:
    """Beside what is published; the pools are named."""
    rows = {row.id: row for row in quick(GainAtEqualCost, seeds=2).run().rows}

    assert rows["RM2: gain"].published == 2.0
    assert rows["RM2: gain"].note == "(1, 0, 13, 0) against (4, 0, 0, 0)"
    assert sum("gain" in name for name in rows) == len(LABELS)


@pytest.mark.usefixtures("pretend")
def test_pools_are_stored_for_the_other_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every pool with its bound; figures 11 and 13 are made from them, and say so when they are missing."""
    with pytest.raises(InvalidInput, match="tuner experiment run kairos-pools --seeds 1"):
        quick(HighestBounds, folder=tmp_path).run()
    monkeypatch.setattr(pools, "QUICK_POOLS", 400)
    monkeypatch.setattr(pools, "ceilings", lambda some, *_: np.full(len(some), 1e4))  # takes long for all
    result = quick(EveryPool).run()
    result.save(tmp_path / "kairos-pools.json")

    stored = pools.measured_pools(tmp_path, "rm2")
    assert len(stored["kairos"]) == 331
    assert result.panel("RM2")[0].name == "kairos"
    below = {row.id: row for row in result.rows}["RM2: most of the ceiling that the oracle serves"]
    assert below.measured == pytest.approx(max(result.panel("RM2")[1].y) / 1e4 * 100, rel=1e-3)  # type: ignore[operator, type-var]
    rows = {row.id: row for row in quick(HighestBounds, seeds=2, folder=tmp_path).run().rows}
    assert rows["RM2: place of the best pool among the bounds"].measured == 1
    assert rows["RM2: chosen over best"].low == rows["RM2: chosen over best"].high == 100
    rows = {row.id: row for row in quick(BoundsByPolicy, seeds=2, folder=tmp_path).run().rows}
    assert rows["(1, 0, 13, 0), kairos"].note == "80 % of the bound"
    assert rows["(1, 0, 13, 0), kairos"].low < rows["(1, 0, 13, 0), kairos"].high  # type: ignore[operator]
    counts = quick(RivalSearches, seeds=2, folder=tmp_path).run()
    assert counts.panel()[0].y == [1.0] * len(LABELS)
    assert all(min(series.y) > 1 for series in counts.panel()[1:])  # type: ignore[operator, type-var]


@pytest.mark.usefixtures("pretend")
@pytest.mark.parametrize("kind", [PoolsTried, HighestBounds])
def test_the_median_of_several_seeds_is_not_taken_for_the_first_one(
    kind: type[PoolsTried | HighestBounds], tmp_path: Path
) -> None:
    """It is refused before anything is measured."""
    quick(EveryPool, seeds=2).run().save(tmp_path / "kairos-pools.json")
    experiment = kind(ExperimentOptions(seeds=2, folder=tmp_path, workers=1))

    with pytest.raises(InvalidInput, match="with one seed, but it is of 2; run"):
        experiment.prepare()


@pytest.mark.usefixtures("pretend")
def test_searches_run_on_the_pools_that_were_measured(tmp_path: Path) -> None:
    """A quick look stores those with the highest bounds only; the best of them is to be found."""
    quick(EveryPool).run().save(tmp_path / "kairos-pools.json")

    counts = quick(RivalSearches, folder=tmp_path).run()

    assert counts.panel()[0].y == [1.0] * len(LABELS)
    assert max(row.high for row in counts.rows if row.high is not None) <= pools.QUICK_POOLS


@pytest.mark.usefixtures("pretend")
def test_searches_count_until_the_best() -> None:
    """The evaluation that found the best, not the last one."""
    evaluations = tuple(Evaluation((n,), rate) for n, rate in ((1, 5.0), (2, 9.0), (3, 7.0)))
    found = SearchResult((2,), 9.0, evaluations, 10, 4, 3, complete=True)

    assert until_best(found) == 2
    rows = quick(PoolsTried, seeds=2).run().rows
    assert rows[0].id == "DIEN, kairos: tried until the best is tried"
    assert rows[0].measured == pytest.approx(100 / 331)


@pytest.mark.usefixtures("pretend")
def test_every_scheme_reacts_to_new_sizes() -> None:
    """Kairos in one step; the others try pool after pool."""
    result = quick(ReactionToSizes, seeds=2).run()

    steps = {series.name: series.y for series in result.series}
    assert set(steps) == set(fig12.SCHEMES)
    assert len(set(steps["kairos"])) == 1
    assert steps["kairos+"][0] == steps["kairos"][0]


@pytest.mark.usefixtures("pretend")
def test_figure_15_has_the_gain_over_the_old_type_too() -> None:
    """With a higher target r5n.large keeps it at all sizes of RM2; the GPUs are compared with, too."""
    rows = {row.id: row for row in quick(GainByBudget, seeds=2).run().rows}

    assert rows["RM2, QoS target 20 % higher: gain"].note == "(0, 0, 16, 0) against (0, 0, 16, 0)"
    over = rows["RM2, QoS target 20 % higher: gain over the type of figure 8"]
    assert over.note == "(0, 0, 16, 0) against (4, 0, 0, 0)"
    assert over.measured > 2  # type: ignore[operator]
    assert not any("NCF" in name and "over the type" in name for name in rows)
    assert rows["NCF, QoS target 20 % higher: place of the best pool among the bounds"].measured == 1
    assert rows["NCF, QoS target 20 % higher: chosen over best"].measured == 100


@pytest.mark.usefixtures("pretend")
def test_figure_16_says_what_noise_costs() -> None:
    """With the doubts of the policy and without; the targets are for 5 %."""
    rows = {row.id: row for row in quick(GainUnderNoise, seeds=2).run().rows}

    lost = rows["WND, predictions are off by 5 %: lost"]
    assert (lost.measured, lost.published) == (0.0, 3.0)  # nothing is lost here, by what is pretended
    believing = rows["WND, execution varies by 20 %: lost if predictions are believed"]
    assert believing.published is None
    assert believing.measured == pytest.approx(100 * (1 - 0.5 / NEAR))


def test_figure_1_scales_the_homogeneous_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four GPUs cost less than the budget; their throughput is scaled up, the others' is not."""
    monkeypatch.setattr(PoolExperiment, "rate", lambda *_: 10.0)
    rows = {row.id: row.measured for row in quick(MixedPools, seeds=2).run().rows}

    assert rows["(4, 0, 0), exponential gaps: throughput"] == pytest.approx(10 * 2.5 / 2.104, abs=1e-5)
    assert rows["(2, 0, 9), exponential gaps: over homogeneous"] == pytest.approx(2.104 / 2.5, abs=1e-5)

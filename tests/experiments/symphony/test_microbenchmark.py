"""The sample of the grid of Table 3, and what Figure 4 and the tuning make of goodputs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tuner.cluster.goodput import capacity
from tuner.cluster.scenario import Scenario
from tuner.cluster.simulation import simulate
from tuner.experiments.frame.options import ExperimentOptions
from tuner.experiments.frame.result import Result
from tuner.experiments.symphony import fig4, tuned
from tuner.experiments.symphony.clusters import microbenchmark
from tuner.experiments.symphony.clusters.microbenchmark import (
    MIXED,
    MODELS,
    SAMPLED,
    ClusterPoint,
    cases,
    grid,
    keeps,
    mixed,
    points,
    rate,
    sample,
    scenario,
)
from tuner.experiments.symphony.fig4 import make_rows, make_series, ratios
from tuner.experiments.symphony.tuned import TunedCluster, candidates, choose, reordered
from tuner.scheduling.batching.symphony import SymphonyOptions as Scheduler
from tuner.scheduling.knobs import KNOBS, configuration_of

DENSE = ClusterPoint("DenseNet121", 8, 2.0, 30, 1.0)
BERT = ClusterPoint("BERT", 8, 1.0, 30, 0.5)
ZOO = mixed((2.0,), (1.0,))[0]


def test_the_grid_is_that_of_the_paper() -> None:
    """All combinations of six models, six counts, seven ratios, five SLOs and six shapes."""
    assert len(set(grid())) == 6 * 6 * 7 * 5 * 6


def test_the_sample_is_fixed_and_fair() -> None:
    """The same clusters every time, as many of each model, none twice."""
    chosen = sample(30)

    assert chosen == sample(30)
    assert len(set(chosen)) == 30
    assert set(chosen) <= set(grid())
    assert Counter(point.model for point in chosen) == dict.fromkeys(MODELS, 5)


def test_points_are_distinct_and_hold_the_zoo() -> None:
    """No cluster is measured twice; those for the curves come on top."""
    everything = points(quick=False)

    assert len(set(everything)) == len(everything) == SAMPLED + 14
    assert {point.ratio for point in everything if point.model == MIXED} == {1, 1.5, 2, 2.5, 3, 3.5, 4}


def test_curves_are_measured_with_all_seeds() -> None:
    """The sample's other clusters with one, and fewer requests; none twice."""
    figure = fig4.DeferredBatching(ExperimentOptions(seeds=2))
    tasks = figure.tasks()

    assert len(set(tasks)) == len(tasks)
    careful = [task for task in tasks if task.requests == fig4.REQUESTS]
    assert {tuple(figure.seeds_of(task)) for task in careful} == {(1, 2)}
    assert {tuple(figure.seeds_of(task)) for task in set(tasks) - set(careful)} == {(1,)}
    assert {task.point for task in careful} == {*mixed(), *cases()}
    assert {task.point for task in tasks} == {*points(quick=False), *cases()}


def test_scenario_is_the_cluster_of_the_point() -> None:
    """Equal models have one SLO, the zoo's models their own; accelerators follow from the ratio."""
    dense = scenario(DENSE, "eager", {}, requests=1000, seed=1)
    zoo = scenario(ZOO, "symphony", {"deferral": 0.5}, requests=1000, seed=1)

    assert (dense.accelerators, len(dense.each_session)) == (16, 8)
    assert {session.slo_ms for session in dense.each_session} == {30.0}
    assert (zoo.accelerators, len(zoo.each_session)) == (70, 35)
    assert len({session.slo_ms for session in zoo.each_session}) > 5
    assert [session.rate for session in dense.each_session] == [125.0] * 8


def test_deferring_pays_where_batching_helps() -> None:
    """At 5,500 requests/s of DenseNet121 at 30 ms symphony is good, and eager is not."""
    load = {"rate": 5500.0, "seconds": 0.3, "warmup_seconds": 0.1}

    ours, theirs = (
        simulate(scenario(DENSE, policy, {}, requests=1000, seed=1).model_copy(update=load))
        for policy in ("symphony", "eager")
    )

    assert ours.bad_rate < 0.02 < theirs.bad_rate


@pytest.mark.parametrize(("point", "overall", "requests"), [(DENSE, True, 2e4), (ZOO, False, 6e4)])
def test_equal_models_count_together(
    monkeypatch: pytest.MonkeyPatch, point: ClusterPoint, overall: bool, requests: float
) -> None:
    """The bad rate is that of all equal models, but of each unlike one, which then has more requests."""
    asked: dict[str, Any] = {}

    def searched(cluster: Scenario, **options: Any) -> SimpleNamespace:
        asked.update(options, requests=cluster.seconds * capacity(cluster))
        return SimpleNamespace(rate=7.0)

    monkeypatch.setattr(microbenchmark, "goodput", searched)

    assert rate(point, "eager", {}, requests=2e4, seed=1) == 7.0
    assert asked["good"].overall is overall
    assert asked["requests"] == pytest.approx(requests)


def test_ratios_medians_and_shares() -> None:
    """Per cluster the median over seeds counts; groups and shares are over clusters."""
    rates = {
        DENSE: [{"symphony": 160.0, "eager": 100.0}, {"symphony": 140.0, "eager": 100.0}],
        BERT: [{"symphony": 90.0, "eager": 100.0}, {"symphony": 90.0, "eager": 100.0}],
    }

    found = ratios(rates, "symphony", "eager")
    rows = {row.id: row.measured for row in make_rows({"eager": found})}

    assert found[DENSE] == [1.6, 1.4]
    assert rows["over eager: all clusters"] == pytest.approx(1.2)
    assert rows["over eager: DenseNet121 at 30 ms"] == pytest.approx(1.5)
    assert rows["over eager: BERT"] == pytest.approx(0.9)
    assert rows["over eager: share of ratios >= 0.95"] == 0.5
    assert rows["over eager: share of ratios >= 1.5"] == 0.5
    assert "over eager: mixed zoo" not in rows


def test_curves_only_where_there_are_points(tmp_path: Path) -> None:
    """Without clusters of a panel it stays empty, and can still be drawn."""
    series = make_series({"eager": {ZOO: [1.2], ClusterPoint("BERT", 32, 2.0, 30, 0.5): [1.0]}})

    assert [one.panel for one in series] == [fig4.PANELS[0], fig4.PANELS[2], fig4.PANELS[3]]
    result = Result(experiment="symphony-fig4", seeds=1, series=series)
    assert fig4.DeferredBatching.plot(result, tmp_path)[0].exists()


def test_a_later_configuration_must_be_clearly_better(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a fifth of a per cent the earlier one stays, so that defaults win ties."""
    goodputs = {str(options): 100.0 for options in candidates() + reordered()}
    goodputs[str(candidates()[1])] = 100.1
    goodputs[str(candidates()[3])] = 101.0
    goodputs[str(candidates()[4])] = 101.1
    goodputs[str(reordered()[2])] = 102.0
    monkeypatch.setattr(tuned, "rate", lambda point, policy, options, **_: goodputs[str(options)])
    monkeypatch.setattr(
        tuned, "keeps", lambda point, policy, options, total, **_: total <= goodputs[str(options)]
    )

    assert choose(DENSE, 1000.0, 1) == (candidates()[3], reordered()[2])


def test_a_doubtful_cluster_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With more requests and other seeds, and that counts; a good one is not."""
    asked: list[tuple[float, int, list[int]]] = []

    def attempt(task: tuned.ToTune, train_seed: int, seeds: range) -> TunedCluster:
        asked.append((task.requests, train_seed, list(seeds)))
        ratio = 0.98 if task.requests == 10.0 and task.point == BERT else 1.0
        return TunedCluster(task.point, ratio, ratio, 1.0, 0.9, {}, {})

    monkeypatch.setattr(tuned, "attempt", attempt)

    found = [tuned.tune(tuned.ToTune(point, 5.0, 10.0, 2)) for point in (DENSE, BERT)]

    assert [(one.again, one.reordered) for one in found] == [(False, 1.0), (True, 1.0)]
    assert asked == [(10.0, 1000, [1, 2]), (10.0, 1000, [1, 2]), (40.0, 1001, [3, 4])]


@pytest.mark.parametrize(("point", "expected"), [(DENSE, True), (ZOO, False)])
def test_a_rate_keeps_the_limit_that_is_searched(
    monkeypatch: pytest.MonkeyPatch, point: ClusterPoint, expected: bool
) -> None:
    """All equal models together may have 1 % of bad requests; of unlike ones each."""
    tried: list[float] = []

    def simulate(cluster: Scenario) -> SimpleNamespace:
        tried.append(cluster.total_rate)
        return SimpleNamespace(bad_rate=0.01, worst_bad_rate=0.02)

    monkeypatch.setattr(microbenchmark, "simulate", simulate)

    assert keeps(point, "eager", {}, 123.0, requests=2000.0, seed=1) is expected
    assert tried == [123.0]


def test_the_configurations_are_values_of_the_knobs() -> None:
    """All are on the grid of the knobs, all different, and the first are the defaults."""
    grids = {knob.name: knob.grid for knob in KNOBS}
    options = [Scheduler(**values) for values in candidates()]

    assert options[0] == Scheduler()
    assert len(set(options)) == len(options)
    for one in options:
        assert all(value in grids[name] for name, value in configuration_of(one).items())


def test_rows_of_the_tuning(tmp_path: Path) -> None:
    """The least ratio to the better rival is named with its cluster."""
    found = [
        TunedCluster(DENSE, 120.0, 120.0, 100.0, 80.0, {}, {}),
        TunedCluster(BERT, 98.0, 99.5, 90.0, 100.0, {}, {}),
    ]

    rows = {row.id: row for row in tuned.make_rows(found)}

    assert rows["tuned over symphony"].low == pytest.approx(98 / 90, rel=1e-5)
    least = rows["tuned over the better of the two"]
    assert least.low == 0.98
    assert "1 of 2 clusters below 0.99" in least.note
    assert "8 x BERT at 30 ms, 8 accelerators, gamma(0.5)" in least.note
    free = rows["tuned with its dispatch order over the better of the two"]
    assert free.low == 0.995
    assert "0 of 2 clusters below" in free.note
    series = tuned.make_series(found)
    result = Result(experiment="symphony-tuned", seeds=1, series=series)
    assert tuned.TunedKnobs.plot(result, tmp_path)[0].exists()

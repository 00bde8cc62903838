"""Goodput of whole systems: the zoos on 64 accelerators, and 20 equal models against the SLO."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.experiments.quick import quick
from tuner.cluster.simulation import simulate
from tuner.experiments.symphony import fig6, fig7


def test_the_sets_of_models_are_split_by_what_batching_helps() -> None:
    """gt2 and lt2 share out all 35 and all 37 models."""
    for zoo, count in (("1080Ti", 35), ("A100", 37)):
        strong, weak = fig6.chosen(zoo, "gt2"), fig6.chosen(zoo, "lt2")

        assert len(fig6.chosen(zoo, "all")) == len(strong) + len(weak) == count
        assert min(one.batching for one in strong) > 2 > max(one.batching for one in weak)


def test_frontends_belong_to_nexus() -> None:
    """The scenario of Nexus with 8 frontends has them."""
    task = fig6.Bar("A100", "lt2", "nexus, 8 frontends")

    found = fig6.scenario(task, 5000.0, 1)

    assert (found.policy, found.frontends, found.accelerators) == ("nexus", 8, 64)
    assert fig6.scenario(task._replace(system="symphony"), 5000.0, 1).frontends == 1


def test_the_gain_is_over_the_best_baseline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eager is none of the paper's baselines; published gains stand beside ours."""
    rates = {
        "symphony": [(40.0, 60.0), (36.0, 60.0)],
        "clockwork": [(20.0, 24.0), (12.0, 24.0)],
        "eager": [(39.0, 39.0)] * 2,
        "nexus, 1 frontend": [(10.0, 20.0), (12.0, 20.0)],
        "nexus, 8 frontends": [(5.0, 15.0), (6.0, 15.0)],
    }

    def measure(_: fig6.ZooGoodput, task: fig6.Bar, seed: int) -> fig6.ZooRates:
        return fig6.ZooRates(*rates[task.system][seed - 1])

    monkeypatch.setattr(fig6.ZooGoodput, "measure", measure)
    result = quick(fig6.ZooGoodput, seeds=2).run()
    rows = {row.id: row for row in result.rows}

    gain = rows["A100, gt2: symphony over the best baseline"]
    assert (gain.published, gain.measured, gain.low, gain.high) == (5.7, 2.5, 2.0, 3.0)
    assert gain.note == "best baseline: clockwork"
    assert fig6.ZooGoodput.plot(result, tmp_path)[0].exists()


def test_zipf_makes_the_first_model_most_popular() -> None:
    """The total stays the same; Poisson and bursty arrivals differ."""
    found = fig7.scenario(fig7.Popular("Zipf 0.9", "gamma 0.05", 25, "symphony"), 1000.0, 1)

    rates = [session.rate for session in found.each_session]
    assert len(rates) == fig7.MODELS
    assert rates[0] / rates[9] == pytest.approx(10**0.9)  # type: ignore[operator]
    assert found.sessions[0].arrival == "gamma:0.05"


def test_rows_are_for_the_ends_and_curves_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A curve per workload and policy over all SLOs."""
    monkeypatch.setattr(fig7.GoodputBySlo, "slos", (20, 25, 100))
    monkeypatch.setattr(fig7.GoodputBySlo, "measure", lambda _, task, seed: float(seed * task.slo_ms))

    result = quick(fig7.GoodputBySlo, seeds=2).run()

    assert len(result.rows) == 4 * 2 * len(fig7.POLICIES)
    assert len(result.series) == 4 * len(fig7.POLICIES)
    assert result.series[0].y == [30.0, 37.5, 150.0]
    assert fig7.GoodputBySlo.plot(result, tmp_path)[0].exists()


def test_symphony_is_ahead_at_a_tight_slo() -> None:
    """At 15 ms and 5,000 requests/s Clockwork's batches are too small, those of Symphony are not."""
    task = fig7.Popular("equally popular", "Poisson", 15, "symphony")
    load = {"rate": 5000.0, "seconds": 0.2, "warmup_seconds": 0.05}

    ours, theirs = (
        simulate(fig7.scenario(task._replace(policy=policy), 1000.0, 1).model_copy(update=load))
        for policy in ("symphony", "clockwork")
    )

    assert ours.bad_rate < 0.02
    assert theirs.bad_rate > 0.1

"""Figures 5 and 9 of Nexus: one accelerator, early and lazy dropping."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.experiments.quick import quick
from tuner.cluster import simulate
from tuner.experiments.nexus import fig5, fig9
from tuner.experiments.nexus.fig5 import Dropping, DroppingRule, LazyDropping
from tuner.experiments.nexus.fig9 import EarlyDropping, RuleThroughput
from tuner.experiments.nexus.one_accelerator import ALPHAS, BATCH, OPTIMUM, SLO, scenario


@pytest.mark.parametrize("alpha", ALPHAS)
def test_every_alpha_has_the_same_optimum(alpha: float) -> None:
    """25 requests take half of the SLO, and one more would take longer."""
    latency = scenario(alpha, "early").cluster_spec().sessions[0].latency[0]

    assert latency[BATCH] == pytest.approx(SLO / 2 / 1e3)
    assert BATCH / latency[BATCH] == pytest.approx(OPTIMUM)


def test_lazy_dropping_collapses_under_poisson_arrivals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """At alpha 1.0 and 90 % of the optimum; early dropping does not."""
    monkeypatch.setattr(LazyDropping, "seconds", 4.0)
    bad = {
        (drop, arrival): quick(LazyDropping).measure(DroppingRule(drop, arrival, 1.0), 1).bad
        for drop in ("early", "lazy")
        for arrival in fig5.ARRIVALS
    }

    assert bad["lazy", "uniform"] == bad["early", "uniform"] == 0
    assert bad["lazy", "Poisson"] > bad["early", "Poisson"] + 20


def test_rows_and_curves_of_figure_5(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A curve for each rule and kind of arrivals."""
    monkeypatch.setattr(LazyDropping, "measure", lambda _, task, seed: Dropping(10 * task.alpha, 4.0))
    result = quick(LazyDropping, seeds=2).run()

    assert [one.name for one in result.series] == [
        "lazy, uniform", "lazy, Poisson", "early, uniform", "early, Poisson",
    ]  # fmt: skip
    assert len(result.rows) == 4 * len(fig5.SHOWN)
    assert LazyDropping.plot(result, tmp_path)[0].exists()


def test_rows_and_curves_of_figure_9(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gain is that of each seed; the published ones are with planned batches and the full length."""

    def measure(_: EarlyDropping, task: RuleThroughput, seed: int) -> float:
        return (480.0 if task.rule.drop == "early" else 400.0) * (1 + seed)

    monkeypatch.setattr(EarlyDropping, "measure", measure)
    result = quick(EarlyDropping, seeds=2).run()

    assert {row.measured for row in result.rows} == {20.0}
    assert [(row.id, row.published) for row in result.rows if row.published] == [
        ("alpha 1.0: early over lazy drop", 23.0),
        ("alpha 1.8: early over lazy drop", 5.0),
    ]
    assert "alpha 1.8: early over lazy drop, 10 s" in {row.id for row in result.rows}
    assert [len(result.panel(name)) for name in (fig9.THROUGHPUT, fig9.GAIN, fig9.LENGTH)] == [3, 3, 2]
    assert EarlyDropping.plot(result, tmp_path)[0].exists()


def test_the_letter_of_the_paper_is_lazier_still() -> None:
    """At alpha 1.0 and 80 % of the optimum, requests that cannot make it any more spoil batches of others."""
    bad = {
        drop: simulate(scenario(1.0, drop, rate=0.8 * OPTIMUM, cap="profile", seconds=3.0, seed=1)).bad_rate
        for drop in ("early", "lazy", "missed")
    }

    assert bad["early"] < bad["lazy"] < bad["missed"]

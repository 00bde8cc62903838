"""RRL's figures: relations, curves, and that each can be run and drawn."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from tests.laboratory.trials import made_trial
from tuner.experiments.options import Options
from tuner.experiments.rrl.figures import comparison_figures
from tuner.experiments.rrl.series import bars, exceeding, over_time
from tuner.experiments.rrl.study import agent_rows, relation_rows


def trials():
    """Two seeds of two agents; CAPES needs twice as long, and half as long again with seed 1."""
    found = []
    for seed in (0, 1):
        for agent, mean in (("rrl", 0.1), ("capes", 0.2 + 0.2 * seed)):
            values = np.full(40, mean)
            broken = np.arange(40) < (10 if agent == "capes" else 0)
            found.append(
                made_trial(
                    agent=agent, seed=seed, cost=10 * values, mean=values, p95=2 * values,
                    kept=1.0 - broken, expected=1.0 + broken, best=np.ones(40),
                )
            )  # fmt: skip
    return found


def test_relations_are_seed_by_seed():
    """RRL is 50 and 75 % below; the published value stands beside the median."""
    (found,) = relation_rows(
        "Inception, WiKi", trials(), lambda f: f.mean_latency, "mean latency", {"capes": 50.6}
    )

    assert (found.measured, found.low, found.high, found.published) == (62.5, 50.0, 75.0, 50.6)
    assert found.id == "Inception, WiKi: mean latency of RRL below CAPES"


def test_a_rival_without_any_leaves_nothing_to_compare():
    """As when it never broke the SLO."""
    swapped = [t._replace(kept=np.ones(40)) for t in trials()]

    (found,) = relation_rows("x", swapped, lambda f: f.slo_violations, "broken", {"capes": 1.0})

    assert found.measured is None
    assert "the rival had none" in found.note


def test_agents_have_their_own_rows():
    """Medians over seeds; what was never measured has none."""
    rows = agent_rows(
        "x", trials(), {"latency": (lambda f: f.mean_latency, "s"), "gpu": (lambda f: float("nan"), "")}
    )

    assert [(row.id, row.measured) for row in rows] == [("x, RRL: latency", 0.1), ("x, CAPES: latency", 0.3)]


def test_curves_are_medians_with_their_range():
    """Over time, beyond a value, and as bars."""
    latest = next(one for one in over_time(trials(), lambda t: t.cost) if one.name == "capes")
    tail = exceeding(trials(), lambda t: t.p95)
    broken = bars(trials(), lambda f: f.slo_violations)

    assert (latest.y[-1], latest.low[-1], latest.high[-1]) == (3.0, 2.0, 4.0)
    assert tail[0].y[0] == 1.0
    assert tail[0].y[-1] is None
    assert [one.y for one in broken] == [[0.0], [0.25]]


def test_comparisons_are_drawn(tmp_path):
    """Five figures, four where no exact costs are known."""
    unknown = [t._replace(expected=np.full(40, np.nan), best=np.full(40, np.nan)) for t in trials()]

    assert len(comparison_figures(trials(), tmp_path)) == 5
    assert len(comparison_figures(unknown, tmp_path, "other")) == 4


@pytest.mark.slow  # networks are trained
@pytest.mark.parametrize("name", ["rivals", "fig11", "fig12", "fig13", "fig14", "fig15"])
def test_experiments_run_and_are_drawn(tmp_path, name):
    """The short version: every case has rows beside the published values, and the figure is written."""
    module = importlib.import_module(f"tuner.experiments.rrl.{name}")

    result = module.run(Options(seeds=1, quick=True, folder=tmp_path, report=lambda text: None, workers=1))

    assert result.experiment == f"rrl-{name}"
    for case in getattr(module, "CASES", ()):
        assert any(row.id.startswith(case.name) for row in result.rows), case.name
    # how many times fewer windows the rivals need is known only where exact costs are, which take their time
    assert name == "rivals" or any(row.published is not None for row in result.rows)
    assert module.plot(result, tmp_path) == [tmp_path / f"rrl-{name}.png"]

"""What frontends cost Nexus: the clusters are within the paper's ranges, and the sums are right."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.experiments.quick import quick
from tuner.experiments.symphony import fig1


@pytest.mark.parametrize("cluster", fig1.CLUSTERS, ids=lambda one: one.name)
def test_clusters_are_within_the_ranges_of_the_paper(cluster: fig1.FrontendCluster) -> None:
    """8 to 64 accelerators, 1 to 37 models, 20 to 100 ms, with as many frontends as wanted."""
    made = fig1.scenario(fig1.SplitFrontends(cluster, 8), 5000.0, 1)

    assert 8 <= cluster.accelerators <= 64
    assert 1 <= len(made.each_session) == cluster.number <= 37
    assert all(20 <= session.slo_ms <= 100 or not cluster.slo_ms for session in made.each_session)
    assert (made.policy, made.frontends) == ("nexus", 8)


def test_the_least_and_the_greatest_loss_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each seed over all clusters."""

    def measure(_: fig1.FrontendLoss, task: fig1.SplitFrontends, seed: int) -> float:
        cluster, frontends = task
        return 1000.0 if frontends == 1 else 1000.0 - cluster.slo_ms * seed

    monkeypatch.setattr(fig1.FrontendLoss, "measure", measure)
    result = quick(fig1.FrontendLoss, seeds=2).run()

    least, greatest, *_ = result.rows
    assert (least.published, least.low, least.high) == (5.0, 2.0, 4.0)
    assert (greatest.published, greatest.low, greatest.high) == (40.0, 10.0, 20.0)
    assert fig1.FrontendLoss.plot(result, tmp_path)[0].exists()

"""Random clusters, on which ways to form batches are compared."""

from __future__ import annotations

import pytest

from tuner.experiments.dispatch.deferral import Deferral, DispatchDeferral, drawn
from tuner.experiments.frame.options import ExperimentOptions


def test_all_ways_meet_the_same_cluster() -> None:
    """They differ in the policy alone."""
    eager, symphony = drawn(Deferral("eager"), 3, 5.0), drawn(Deferral("symphony", 0.1), 3, 5.0)

    assert symphony.model_copy(update={"policy": "eager", "options": eager.options}) == eager
    assert symphony.sessions != drawn(Deferral("symphony", 0.1), 4, 5.0).sessions


def test_goodputs_are_compared_cluster_by_cluster() -> None:
    """Half as much on one cluster and twice as much on another is as much in the mean."""
    found = {Deferral("eager"): [100.0, 40.0, 0.0], Deferral("symphony", 0.1): [50.0, 80.0, 0.0]}

    mean, middle, worst = DispatchDeferral(ExperimentOptions(seeds=3)).rows(found)

    assert mean.measured == pytest.approx(1.0)
    assert middle.measured == 1.0
    assert worst.measured == pytest.approx(0.6)

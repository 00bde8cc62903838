"""Agents beside the enumeration of a scheduler's knobs."""

from __future__ import annotations

import pytest

from tests.experiments.quick import quick
from tuner.experiments.symphony.agent import AGENTS, DEFAULTS, ENUMERATION, Chosen, ClusterAgents, TuningTask
from tuner.experiments.symphony.clusters.microbenchmark import ClusterPoint

POINT = ClusterPoint("DenseNet121", 8, 2.0, 30, 1.0)


def test_choices_are_compared_cluster_by_cluster() -> None:
    """By the median over the seeds; the note counts the clusters in which an agent lost."""
    other = POINT._replace(number=16)
    found = {
        TuningTask(point, chooser): [Chosen(goodput, (0.5,) * 3, (bad,) * 3)]
        for point, better in ((POINT, 1.0), (other, 0.9))
        for chooser, goodput, bad in (
            (DEFAULTS, 100.0, 0.02),
            (ENUMERATION, 120.0, 0.01),
            *((agent, better * 120.0, 0.0) for agent in AGENTS),
        )
    }

    rows = {one.id: one for one in quick(ClusterAgents).rows(found)}

    lost = rows["rrl: goodput over the enumeration's"]
    assert (lost.low, lost.high, lost.note) == (0.9, 1.0, "less in 1 of 2 clusters")
    assert rows["enumeration: goodput over the defaults'"].measured == 1.2
    busy = rows["random: accelerator time at 0.73 of the goodput, over the defaults'"]
    assert busy.note == "bad rate within 1% in 2 of 2 runs; the defaults' in 0 of 2 runs"


@pytest.mark.slow
def test_an_agent_chooses_for_a_cluster() -> None:
    """What it chose is judged on other arrivals, and the same seed gives the same."""
    experiment = quick(ClusterAgents)
    task = TuningTask(POINT, "hill_climb")

    chosen = experiment.measure(task, 0)

    assert chosen.goodput > 0
    assert all(0 < busy <= 1 for busy in chosen.busy)
    assert experiment.measure(task, 0) == chosen

"""A log of the dispatcher, simulated: here the log is a simulation's own, so that the truth is known."""

from __future__ import annotations

import pytest

from tuner.cluster.scenario import Scenario
from tuner.cluster.simulation import Simulation
from tuner.dispatch.journal import Segment
from tuner.experiments.dispatch.simulated import executions, sent_mean_batch, simulated
from tuner.scheduling.log import EventLog

SECONDS = 20.0

pytestmark = pytest.mark.compiled


@pytest.fixture(scope="module")
def segment() -> Segment:
    """Two models on two accelerators near their capacity; executions differ from the profiles by 10 %."""
    sessions = [
        {"name": "a", "slo_ms": 60, "rate": 500, "alpha_ms": 1.0, "beta_ms": 5.0},
        {"name": "b", "slo_ms": 40, "rate": 300, "alpha_ms": 0.5, "beta_ms": 4.0},
    ]
    scenario = Scenario.model_validate(
        {"policy": "symphony", "accelerators": 2, "sessions": sessions, "noise": 0.1, "seconds": SECONDS}
    )
    log = EventLog()
    simulation = Simulation(scenario, log=log)
    simulation.advance(SECONDS)
    return Segment(policy="symphony", options=None, spec=scenario.cluster_spec(), log=log)


def test_the_second_half_is_predicted_from_the_first(segment: Segment) -> None:
    """Its mean batch and its goodput, with other draws of the same executions."""
    served = simulated(segment, seed=1)

    assert served.mean_batch == pytest.approx(sent_mean_batch(segment), rel=0.05)
    assert served.goodput == pytest.approx(800.0, rel=0.05)


def test_executions_are_read_from_the_log(segment: Segment) -> None:
    """Each batch ends after those that were sent to its accelerator before."""
    found = executions(segment.log.entries)
    session, _, size, seconds = found.T
    expected = (1.0 * size + 5.0) * (session == 0) + (0.5 * size + 4.0) * (session == 1)

    assert (seconds * 1e3 / expected).mean() == pytest.approx(1.0, abs=0.01)
    assert (seconds * 1e3 / expected).std() == pytest.approx(0.1, abs=0.02)

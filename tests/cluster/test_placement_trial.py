"""The plan that is chosen by simulation serves at least what Algorithm 1's does."""

from __future__ import annotations

import pytest

from tuner.cluster.goodput import goodput
from tuner.cluster.placement_trial import choose_placement
from tuner.cluster.scenario import Scenario, Session


def make_scenario() -> Scenario:
    """Six sessions with unlike SLOs on three accelerators."""
    sessions = [
        Session(name=f"{slo:g}", alpha_ms=1.0, beta_ms=5.0, slo_ms=slo, rate=100.0)
        for slo in (40.0, 60.0, 80.0, 100.0, 150.0, 200.0)
    ]
    return Scenario(policy="nexus", accelerators=3, sessions=tuple(sessions), seconds=5.0, seed=3)


@pytest.mark.compiled
def test_the_chosen_plan_serves_what_it_is_said_to() -> None:
    """As the option of the policy, on the same arrivals; and no less than the policy's own plan."""
    scenario, told = make_scenario(), list[str]()

    chosen = choose_placement(scenario, note=told.append)

    given = scenario.model_copy(update={"options": {"placement": chosen.placement}})
    assert goodput(given, tolerance=0.01).rate == chosen.rate >= chosen.packed
    assert goodput(scenario, tolerance=0.01).rate == chosen.packed
    assert len(told) == chosen.tried + 1
    assert choose_placement(scenario) == chosen

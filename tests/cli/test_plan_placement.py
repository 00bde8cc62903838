"""``tuner plan placement``: what it prints, stores and refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.cli.planning import EXAMPLES, Plan
from tuner.cluster import Scenario, simulate


def test_a_placement_is_chosen_by_simulation(plan: Plan) -> None:
    """It is shown, is here no worse than the packing alone, and is an option of the policy."""
    session = "{name: %s, alpha_ms: 1, beta_ms: 5, slo_ms: %d, rate: 100}"
    sessions = ", ".join(session % pair for pair in (("a", 25), ("b", 60), ("c", 200), ("d", 200)))
    text = f"accelerators: 2\nseconds: 5\npolicy: nexus\nsessions: [{sessions}]\n"

    code, out, _, stored = plan("placement", text)

    assert code == 0
    assert stored["rate"] >= stored["packed_rate"] > 0
    assert f"the best of {stored['tried']} plans" in out
    scenario = Scenario.model_validate(
        {**yaml.safe_load(text), "options": {"placement": stored["placement"]}, "seconds": 1.0}
    )
    assert simulate(scenario).requests > 0


def test_the_table_is_of_the_first_accelerators(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file has all of them: there may be thousands."""
    monkeypatch.setattr("tuner.cli.plan_placement.ROWS", 1)
    session = "{name: a, alpha_ms: 1, beta_ms: 5, slo_ms: 60, rate: 100}"

    text = f"accelerators: 2\nseconds: 1\npolicy: nexus\nsessions: [{session}]\n"
    _, out, _, stored = plan("placement", text)

    assert "the first 1 of 2 accelerators; --json has all" in out
    assert len(stored["placement"]) == 2


def test_a_placement_is_not_of_requests_with_sizes(plan: Plan) -> None:
    """Their execution times would be those of one item, and the rate hundreds of times too high."""
    code, _, err, stored = plan("placement", Path(EXAMPLES, "mixed.yaml").read_text())

    assert (code, stored) == (2, None)
    assert "sessions[0].sizes: nexus makes batches of requests of one size; leave sizes out" in err


def test_a_policy_in_whose_place_nexus_is_simulated_is_named(plan: Plan) -> None:
    """It says nothing where the file has nexus."""
    text = (
        "accelerators: 1\nseconds: 1\nsessions: [{name: a, alpha_ms: 1, beta_ms: 5, slo_ms: 60, rate: 100}]\n"
    )

    eager, nexus, planned = (
        plan("placement", f"{head}\n{text}").out
        for head in ("policy: eager", "policy: nexus", "planner: nexus")
    )

    assert "note: plans are simulated under nexus, not under the file's policy, eager" in eager
    assert "note" not in nexus
    assert "note: plans are simulated without the file's planner, nexus" in planned

"""The ablation of RRL: every variant runs, and what follows a change of the model is judged apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.experiments.quick import quick
from tuner.agents.catalogue import make_agent
from tuner.experiments.rrl import ablation
from tuner.experiments.rrl.ablation import Ablation
from tuner.knobs import Knob, KnobSpace


def test_variants_can_be_made() -> None:
    """Their parameters exist."""
    space = KnobSpace([Knob(name="instances", grid=(1, 2), default=1)])
    for name, parameters in ablation.VARIANTS.values():
        make_agent(name, space, parameters=parameters).close()


def test_both_scenarios_have_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Windows that broke the SLO, per scenario and variant; short runs have no exact costs."""
    monkeypatch.setattr(Ablation, "windows", 4)
    monkeypatch.setattr(ablation, "VARIANTS", {"all as shipped": ("rrl", {}), "with a prior": ("rrl", {})})

    result = quick(Ablation).run()

    ids = [row.id for row in result.rows]
    assert [i for i in ids if i.endswith("broke the SLO")] == [
        f"{scenario}, all as shipped: windows that broke the SLO"
        for scenario in ("dynamic load", "after the model was replaced")
    ]
    assert all(row.measured == pytest.approx(row.measured) for row in result.rows)
    assert Ablation.plot(result, tmp_path)[0].exists()

"""The ablation of RRL: every variant runs, and what follows a change of the model is judged apart."""

from __future__ import annotations

import pytest

from tuner.agents.catalogue import make_agent
from tuner.experiments.frame.options import Options
from tuner.experiments.rrl import ablation
from tuner.knobs import Knob, KnobSpace


def test_variants_can_be_made():
    """Their parameters exist."""
    space = KnobSpace([Knob(name="instances", grid=(1, 2), default=1)])
    for name, parameters in ablation.VARIANTS.values():
        make_agent(name, space, parameters=parameters).close()


def test_both_scenarios_are_told(monkeypatch, tmp_path):
    """Windows that broke the SLO, per scenario and variant; short runs have no exact costs."""
    monkeypatch.setattr(ablation, "QUICK_WINDOWS", 4)
    monkeypatch.setattr(ablation, "VARIANTS", {"all as shipped": ("rrl", {}), "with a prior": ("rrl", {})})

    result = ablation.run(Options(seeds=1, quick=True, folder=tmp_path, report=print, workers=1))

    ids = [row.id for row in result.rows]
    assert [i for i in ids if i.endswith("broke the SLO")] == [
        f"{scenario}, all as shipped: windows that broke the SLO"
        for scenario in ("dynamic load", "after the model was replaced")
    ]
    assert all(row.measured == pytest.approx(row.measured) for row in result.rows)
    assert ablation.plot(result, tmp_path)[0].exists()

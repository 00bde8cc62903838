"""The benchmark of learning: what it reports, on very little work."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.experiments.benchmarks import training
from tuner.experiments.benchmarks.report import BenchOptions


@pytest.mark.compiled
def test_windows_regions_and_decisions_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Environments beside themselves, regions found and to be found, decisions of every kind."""
    monkeypatch.setattr(
        training, "ENVIRONMENTS", {"cpu": ("tuner/TFServingCPU-v0", {"window": 1.0, "rate": 20.0})}
    )
    monkeypatch.setattr(training, "REGIONS", (1.0,))
    monkeypatch.setattr(training, "DECISIONS", 96)
    monkeypatch.setattr(training, "BEFORE", 1)

    rows = {row.id: row for row in training.run(BenchOptions(repeats=1, quick=True))}

    assert rows["windows, cpu, 16 at once"].baseline
    assert rows["region update, delta 1"].note.startswith("7 configurations")
    assert "RRL.update with training inside, median" in rows
    assert any(name.startswith("rrl with its neural estimator") for name in rows)
    assert all(row.value > 0 for row in rows.values())

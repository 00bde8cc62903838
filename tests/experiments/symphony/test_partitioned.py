"""Figure 15 of Symphony: partitions by integer programming and at random."""

from __future__ import annotations

import pytest

from tests.experiments.quick import quick
from tuner.experiments.symphony.fig15 import Imbalance, PartitionedModels


def test_integer_programming_is_more_even_than_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the rates and in the memory, within the limit."""
    monkeypatch.setattr(PartitionedModels, "models", 40)
    monkeypatch.setattr(PartitionedModels, "limit", 0.5)

    found = quick(PartitionedModels).measure(0, 0)

    assert found.rate[0] < found.rate[1]
    assert found.memory[0] < found.memory[1]


def test_each_instance_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many seeds are asked for; the result says one."""
    imbalance = Imbalance((1.0, 2.0), (1.0, 2.0), 0.5)
    monkeypatch.setattr(PartitionedModels, "measure", lambda *_: imbalance)

    result = quick(PartitionedModels, seeds=3).run()

    assert result.seeds == 1
    assert {row.id: row.measured for row in result.rows}["instances more even than at random in both"] == 2

"""Figure 15 of Symphony: partitions by integer programming and at random."""

from __future__ import annotations

import pytest

from tests.experiments.quick import quick
from tuner.experiments.symphony.fig15 import PartitionedModels


def test_integer_programming_is_more_even_than_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the rates and in the memory, within the limit."""
    monkeypatch.setattr(PartitionedModels, "models", 40)
    monkeypatch.setattr(PartitionedModels, "limit", 0.5)

    found = quick(PartitionedModels).measure(0, 0)

    assert found.rate[0] < found.rate[1]
    assert found.memory[0] < found.memory[1]

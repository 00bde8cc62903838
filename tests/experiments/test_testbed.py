"""What is held beside the best of several configurations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tuner.experiments.live import testbed
from tuner.experiments.live.testbed import measure_beside_best
from tuner.knobs import Configuration

GRID = [Configuration({"max_batch_size": size}) for size in (1, 4, 16)]
HELD = [Configuration({"max_batch_size": 8})]


def test_other_rounds_choose_the_best_than_compare_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lucky window makes a configuration the best, and not better than what is held."""
    calls: list[tuple[list[Configuration], int]] = []

    def in_turns(
        _: Any, configurations: Sequence[Configuration], *, seconds: float, rounds: int
    ) -> dict[Configuration, list[float]]:
        assert seconds == 4.0
        calls.append((list(configurations), rounds))
        lucky = len(calls) == 1
        p95 = {GRID[0]: 0.030, GRID[1]: 0.010 if lucky else 0.015, GRID[2]: 0.014, HELD[0]: 0.013}
        return {one: [p95[one]] * rounds for one in configurations}

    monkeypatch.setattr(testbed, "measure_in_turns", in_turns)
    found = measure_beside_best(object(), GRID, HELD, seconds=4.0, rounds=3)  # type: ignore[arg-type]

    assert calls == [([*GRID, *HELD], 2), ([GRID[1], *HELD], 3)]
    assert found == {GRID[1]: [0.015] * 3, HELD[0]: [0.013] * 3}
    assert next(iter(found)) == GRID[1]

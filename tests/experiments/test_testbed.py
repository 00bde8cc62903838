"""The bench of the live experiments: what they ask it for, and what it makes of windows."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import pytest

from tuner.experiments.frame.discovery import Declared, declared
from tuner.experiments.frame.options import ExperimentOptions
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


@pytest.mark.parametrize(
    "one", [one for one in declared().values() if one.about.foreign_limit], ids=lambda one: one.about.name
)
def test_the_limit_of_foreign_processes_reaches_the_server(
    one: Declared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each experiment that says that it heeds it."""

    class Asked(Exception):
        """Instead of a server."""

    def asked(*_: object, foreign_limit: float | None = None, **__: object) -> None:
        assert foreign_limit == 0.5
        raise Asked

    monkeypatch.setattr(import_module(one.module), "triton", asked)
    experiment = one.load()(ExperimentOptions(seeds=1, quick=True, foreign_limit=0.5))

    with pytest.raises(Asked):
        experiment.measure(next(iter(experiment.tasks())), 0)

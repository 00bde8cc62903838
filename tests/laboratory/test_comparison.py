"""Rows of a comparison."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from tests.laboratory.agent_runs import SMALL, made_run
from tuner.laboratory.agent_run import AgentRun, RunSpec
from tuner.laboratory.comparison import Comparison, compared, run_rows, run_specs


def runs(agent: str, converged: tuple[int | None, ...]) -> list[AgentRun]:
    """A run for each seed that converges after a number of windows; None for never."""
    found = []
    for seed, windows in enumerate(converged):
        expected = np.ones(100)
        expected[: 100 if windows is None else windows - SPAN] = 2.0
        found.append(made_run(agent=agent, seed=seed, expected=expected, cost=expected * 1.1))
    return found


SPAN = 10
"""Windows that a bad one stays in the mean, with the one it is: 2.0 is forgotten ten windows later."""


def test_rows_are_medians_over_seeds() -> None:
    """Who never converges counts as the greatest; low and high are of the windows to converge."""
    fast, slow = compared([*runs("rrl", (20, 30, 25)), *runs("capes", (40, None, None))])

    assert (fast.id, fast.windows_to_converge, fast.low, fast.high) == ("rrl", 25, 20, 30)
    assert (fast.converged, fast.seeds) == (3, 3)
    assert (slow.windows_to_converge, slow.low, slow.high) == (None, 40, None)
    assert slow.converged == 1
    assert fast.mean_cost is not None
    assert slow.mean_cost is not None
    assert fast.mean_cost < slow.mean_cost


def test_each_run_has_a_row_of_its_own() -> None:
    """For confidence intervals and tests that are paired by seed."""
    rows = run_rows([*runs("rrl", (20, 30)), *runs("capes", (None,))])

    assert [(row.id, row.seed, row.windows_to_converge) for row in rows] == [
        ("rrl", 0, 20), ("rrl", 1, 30), ("capes", 0, None),
    ]  # fmt: skip
    assert rows[2].regret == 1.0


def test_without_exact_costs_there_is_no_convergence() -> None:
    """The other figures are there."""
    unknown = np.full(30, math.nan)

    (row,) = compared([made_run(expected=unknown, best=unknown)])

    assert (row.windows_to_converge, row.low, row.high, row.converged) == (None, None, None, None)
    assert row.mean_cost == 1.0


def test_comparisons_survive_a_round_trip(tmp_path: Path) -> None:
    """What was stored is what is read."""
    comparison = Comparison(
        env="e", workload="dynamic", rates=[1.0], arguments={"slo": "p95=30ms"}, windows=100, seeds=2,
        seconds=1.0, command="c", rows=compared(runs("rrl", (20, 30))), runs=run_rows(runs("rrl", (20, 30))),
    )  # fmt: skip
    comparison.save(tmp_path / "c.json")

    assert Comparison.load(tmp_path / "c.json") == comparison


def test_every_agent_has_every_seed() -> None:
    """Seeds come first: neighbours in the list are different agents."""
    spec = RunSpec(**SMALL)
    other = RunSpec(**SMALL | {"agent": "hill_climb"})

    found = run_specs([spec, other], 2)

    assert [(one.agent, one.seed) for one in found] == [
        ("rrl", 0), ("hill_climb", 0), ("rrl", 1), ("hill_climb", 1),
    ]  # fmt: skip

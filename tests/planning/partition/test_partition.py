"""Partitions: balance, limits and disruption, against random ones and an exhaustive search."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from tuner.errors import InvalidInput
from tuner.planning.partition.form import PartitionFile
from tuner.planning.partition.problem import NOWHERE, PartitionProblem, imbalance
from tuner.planning.partition.program import Solved
from tuner.planning.partition.solver import (
    Partition,
    better_partition,
    find_partition,
    random_partition,
)


def problem(seed: int, models: int, parts: int, **more: Any) -> PartitionProblem:
    rng = np.random.default_rng(seed)
    return PartitionProblem(
        **{
            "parts": parts,
            "rate": rng.exponential(300, models),
            "memory": rng.choice([60.0, 100.0, 300.0, 500.0, 900.0], models),
            "runtime": rng.uniform(10, 100, models),
            "move_cost": np.ones(models),
            "before": np.full(models, NOWHERE),
            **more,
        }
    )


@pytest.mark.parametrize("seed", range(3))
def test_a_small_partition_is_the_best_there_is(seed: int) -> None:
    """As found by trying all, with every kind of limit."""
    before = np.random.default_rng(seed).integers(0, 3, 7)
    asked = problem(seed, 7, 3, most_memory=1800.0, most_rate=1500.0, before=before, most_disruption=6.0)
    every = (np.array(one) for one in product(range(3), repeat=7))
    best = min((asked.objective(one) for one in every if asked.allows(one)), default=None)

    if best is None:
        with pytest.raises(InvalidInput):
            find_partition(asked)
        return
    found = find_partition(asked)

    assert found.optimal
    assert asked.allows(found.assignment)
    assert asked.objective(found.assignment) == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("memory_unit", [2.0**20, 1e-6])
def test_a_small_partition_is_the_best_in_any_unit(seed: int, memory_unit: float) -> None:
    """A file's MiB become bytes, of which HiGHS took a tolerance of 1e-6 for far too little."""
    rng = np.random.default_rng(seed)
    asked = problem(
        seed, 7, 2,
        rate=rng.uniform(50, 2000, 7), memory=rng.uniform(50, 1500, 7) * memory_unit,
        runtime=rng.uniform(100, 900, 7) * memory_unit, most_memory=6000 * memory_unit,
    )  # fmt: skip
    every = (np.array(one) for one in product(range(2), repeat=7))
    best = min(asked.objective(one) for one in every if asked.allows(one))

    found = find_partition(asked)

    assert found.optimal
    assert asked.objective(found.assignment) == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize("cost_unit", [1.0, 1e-8])
def test_a_bound_on_disruption_binds_in_any_unit(cost_unit: float) -> None:
    """However little a move costs."""
    before = np.zeros(6, np.int64)
    asked = problem(4, 6, 2, move_cost=np.full(6, cost_unit), before=before, most_disruption=2 * cost_unit)
    every = (np.array(one) for one in product(range(2), repeat=6))
    best = min(asked.objective(one) for one in every if asked.allows(one))

    found = find_partition(asked)

    assert asked.allows(found.assignment)
    assert asked.objective(found.assignment) == pytest.approx(best, abs=1e-6)


def test_a_better_partition_at_hand_is_taken() -> None:
    """Nothing is proved of what is worse; one that breaks a limit is not taken."""
    sizes = np.array([4.0, 3.0, 2.0, 1.0])
    asked = problem(0, 4, 2, rate=sizes, memory=sizes, runtime=np.zeros(4), most_memory=8.0)
    even, uneven, full = np.array([0, 1, 1, 0]), np.array([0, 0, 1, 1]), np.array([0, 0, 0, 1])
    found = Partition(assignment=uneven, seconds=0.1, optimal=True)

    better = better_partition(asked, found, even)

    assert (better.assignment.tolist(), better.optimal) == (even.tolist(), False)
    assert better_partition(asked, better, uneven) is better
    assert better_partition(asked, found, full) is found


def test_a_large_partition_is_better_balanced_than_random_ones() -> None:
    """In rate and in memory; a machine that nobody slows down needs a fraction of a second for that."""
    asked = problem(1, 200, 10, most_memory=1e4)

    found = find_partition(asked, seconds=4.0)
    drawn = random_partition(asked, seconds=0.3)

    assert drawn is not None
    assert asked.allows(found.assignment)
    for own, other in zip(asked.sums(found.assignment), asked.sums(drawn.assignment), strict=True):
        assert imbalance(own) < imbalance(other) / 3


def test_a_large_partition_keeps_the_bound_on_disruption() -> None:
    """Rates have changed; only so many models may move."""
    first = problem(2, 120, 6)
    before = find_partition(first, seconds=0.6).assignment
    changed = problem(3, 120, 6, memory=first.memory, before=before, most_disruption=20.0)

    found = find_partition(changed, seconds=4.0)

    assert 0 < changed.disruption(found.assignment) <= 20.0
    assert changed.objective(found.assignment) < changed.objective(before)


def test_a_bound_that_cannot_be_kept_is_refused() -> None:
    """The least disruption that is possible is named."""
    asked = problem(
        0, 4, 2, rate=np.ones(4), memory=np.full(4, 100.0), runtime=np.zeros(4),
        before=np.zeros(4, np.int64), most_memory=200.0, most_disruption=3.0,
    )  # fmt: skip

    with pytest.raises(InvalidInput, match=r"max_disruption: .* the least disruption is 4"):
        find_partition(asked)


def test_too_little_memory_is_refused() -> None:
    """Before anything is solved."""
    with pytest.raises(InvalidInput, match="memory_mib"):
        find_partition(problem(0, 10, 2, most_memory=200.0))


def test_models_that_fill_a_sub_cluster_exactly_are_not_too_much() -> None:
    """0.1 and 0.2 are 0.3, though not in floating point."""
    model = {"memory_mib": 0.1, "runtime_mib": 0.2}
    asked = PartitionFile.model_validate(
        {
            "partitions": 1,
            "memory_mib": 0.3,
            "max_rate": 0.3,
            "models": [{"name": "a", "rate": 0.1, **model}, {"name": "b", "rate": 0.2}],
        }
    )

    assert find_partition(asked.problem(), seconds=4.0).assignment.tolist() == [0, 0]


def test_a_large_partition_of_the_solver_that_breaks_a_limit_is_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The solver lets its constraints be off by a little; a partition keeps all limits."""
    asked = problem(5, 201, 2)
    asked = replace(asked, most_rate=float(asked.rate.sum()) / 2)  # the greedy partition is not so even
    solved = Solved(np.zeros(201, np.int64), optimal=False, impossible=False, objective=0.0)
    monkeypatch.setattr("tuner.planning.partition.solver.solve_program", lambda *_, **__: solved)

    with pytest.raises(InvalidInput, match="no partition was found in 1 s"):
        find_partition(asked, seconds=1.0)

"""The integer program of a partition (Symphony, appendix A.1), through HiGHS.

``x[i, j]`` says whether model i is in sub-cluster j. Besides these binaries there are the two deviations that
are minimised, and for each sub-cluster the largest runtime memory. A change ``|x - x'|`` is ``x`` or
``1 - x``, as x' is known, so eq. 11 needs no variables.

Rates, memory and costs are stated in thousandths of a mean, whatever they are given in. HiGHS lets an integer
be off by 1e-6: in bytes its answers were far from the best and yet "proved".
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tuner.planning.integer import solve_integer
from tuner.planning.partition.problem import NOWHERE, PartitionProblem
from tuner.rounding import ROUNDING

__all__ = ["Solved", "least_disruption", "solve_program"]

SLACK = 1e-6
"""What HiGHS lets a constraint be off by; it has to be `ROUNDING` of a mean."""


class Solved(NamedTuple):
    """What the solver found."""

    assignment: np.ndarray | None  # (m,) sub-cluster of each model; None if none was found in time
    optimal: bool
    impossible: bool  # whether it is proved that there is none
    objective: float


def solve_program(
    problem: PartitionProblem,
    seconds: float,
    *,
    means: tuple[float, float] | None = None,
    floors: tuple[float, float] = (0.0, 0.0),
    gap: float = 1e-6,
) -> Solved:
    """Return the best partition that is found in time.

    Args:
        problem: The models and limits.
        seconds: For the solver.
        means: Rate and memory that each sub-cluster should have; the means if None.
        floors: Deviations below which nothing is gained, because other sub-clusters have them.
        gap: Relative distance from the best bound at which the solver may stop.
    """
    means = means or _means(problem)
    rate_unit, memory_unit = _unit(means[0]), _unit(means[1])
    rate, memory = means[0] / rate_unit, means[1] / memory_unit
    scaled = _scaled(problem, means)
    cost = np.zeros(_variables(problem))
    cost[-2] = 1 / rate if rate > 0 else 0.0
    cost[-1] = problem.memory_weight / memory if memory > 0 else 0.0
    floors = floors[0] / rate_unit, floors[1] / memory_unit
    return _solve(scaled, cost, (rate, memory), floors, seconds, gap, scaled.most_disruption)


def least_disruption(problem: PartitionProblem, seconds: float) -> Solved:
    """Return the partition that disrupts least, whatever the balance."""
    scaled = _scaled(problem, _means(problem))
    cost = np.zeros(_variables(problem))
    weights, fixed = _disruption(scaled)
    cost[: weights.size] = weights
    found = _solve(scaled, cost, None, (0.0, 0.0), seconds, 1e-6, np.inf)
    return found._replace(objective=(found.objective + fixed) * _unit(problem.move_cost.mean()))


def _means(problem: PartitionProblem) -> tuple[float, float]:
    """Return rate and memory of a sub-cluster in the mean."""
    return problem.rate.sum() / problem.parts, problem.memory.sum() / problem.parts


def _unit(mean: float) -> float:
    """Return the unit in which HiGHS' slack is our rounding of the mean."""
    return float(mean) * ROUNDING / SLACK if mean > 0 else 1.0


def _scaled(problem: PartitionProblem, means: tuple[float, float]) -> PartitionProblem:
    """Return the problem in the units of the means, and of the mean cost of a model."""
    rate, memory, cost = _unit(means[0]), _unit(means[1]), _unit(problem.move_cost.mean())
    return replace(
        problem,
        rate=problem.rate / rate,
        memory=problem.memory / memory,
        runtime=problem.runtime / memory,
        move_cost=problem.move_cost / cost,
        most_rate=problem.most_rate / rate,
        most_memory=problem.most_memory / memory,
        most_disruption=problem.most_disruption / cost,
    )


def _variables(problem: PartitionProblem) -> int:
    return problem.size * problem.parts + problem.parts + 2


def _disruption(problem: PartitionProblem) -> tuple[np.ndarray, float]:
    """Return what each x adds to the disruption, and what it is if all are 0.   # (m * l,)."""
    was = problem.before[:, None] == np.arange(problem.parts)  # (m, l)
    weights = np.where(was, -problem.move_cost[:, None], problem.move_cost[:, None])
    return weights.ravel(), float(problem.move_cost[problem.before != NOWHERE].sum())


def _solve(  # noqa: PLR0917 - the parts of one program
    problem: PartitionProblem,
    cost: np.ndarray,
    means: tuple[float, float] | None,
    floors: tuple[float, float],
    seconds: float,
    gap: float,
    most_disruption: float,
) -> Solved:
    from scipy.optimize import Bounds

    binaries = problem.size * problem.parts
    upper = np.concatenate([np.ones(binaries), np.full(problem.parts + 2, np.inf)])
    lower = np.zeros(upper.size)
    lower[-2:] = floors
    integrality = np.concatenate([np.ones(binaries), np.zeros(problem.parts + 2)])
    found = solve_integer(
        cost,
        integrality=integrality,
        bounds=Bounds(lower, upper),
        constraints=_constraints(problem, means, most_disruption),
        options={"time_limit": seconds, "mip_rel_gap": gap},
    )
    assignment = None
    if found.x is not None:
        assignment = found.x[:binaries].reshape(problem.size, problem.parts).argmax(axis=1)
    value = float(found.fun) if found.fun is not None else np.inf
    return Solved(assignment, found.status == 0, found.status == 2, value)


def _constraints(
    problem: PartitionProblem, means: tuple[float, float] | None, most_disruption: float
) -> list[object]:
    from scipy.optimize import LinearConstraint
    from scipy.sparse import block_array, csr_array, eye_array, kron

    models, parts = problem.size, problem.parts
    one = csr_array(np.ones((1, parts)))
    rates = kron(csr_array(problem.rate[None]), eye_array(parts))  # (l, m * l)
    memories = kron(csr_array(problem.memory[None]), eye_array(parts))
    none, own = csr_array((parts, parts)), eye_array(parts)
    column = csr_array(np.ones((parts, 1)))
    zero = csr_array((parts, 1))

    def rows(*blocks: object) -> object:
        return block_array([list(blocks)], format="csr")

    each = block_array([[kron(eye_array(models), one), csr_array((models, parts + 2))]], format="csr")
    made: list[object] = [LinearConstraint(each, 1, 1)]  # eq. 9
    if np.isfinite(problem.most_rate):
        made.append(LinearConstraint(rows(rates, none, zero, zero), -np.inf, problem.most_rate))  # eq. 5
    if np.isfinite(problem.most_memory):
        made.append(LinearConstraint(rows(memories, own, zero, zero), -np.inf, problem.most_memory))  # eq. 6
        if problem.runtime.any():
            chosen = kron(csr_array(np.diag(problem.runtime)), own)  # d_i x_ij
            spread = kron(csr_array(np.ones((models, 1))), own)
            wide = block_array([[chosen, -spread, csr_array((models * parts, 2))]], format="csr")
            made.append(LinearConstraint(wide, -np.inf, 0))
    if means is not None:
        for sums, mean, place in ((rates, means[0], 0), (memories, means[1], 1)):
            slack = (column, zero) if place == 0 else (zero, column)
            less = tuple(-part for part in slack)
            made.append(LinearConstraint(rows(sums, none, *less), -np.inf, mean))  # eq. 7 and 8
            made.append(LinearConstraint(rows(sums, none, *slack), mean, np.inf))
    if np.isfinite(most_disruption):
        weights, fixed = _disruption(problem)
        line = csr_array(np.concatenate([weights, np.zeros(parts + 2)])[None])
        made.append(LinearConstraint(line, -np.inf, most_disruption - fixed))  # eq. 11
    return made

"""Finds a partition within a time limit: by integer programming, of all at once or of a few sub-clusters.

Symphony, appendix A. The whole integer program is solved at once if it is small. A large one, such as 800
models in 20 sub-clusters, would find nothing good in ten seconds. We therefore begin with a partition made
greedily, the largest model first, and improve it by solving the same program for few sub-clusters at a time:
those that deviate most, and one chosen at random. `random_partition` is the baseline of the paper.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tuner.errors import InvalidInput
from tuner.planning.partition.problem import NOWHERE, PartitionProblem
from tuner.planning.partition.program import Solved, least_disruption, solve_program
from tuner.rounding import ROUNDING

__all__ = ["Partition", "better_partition", "find_partition", "random_partition"]

SMALL = 400
"""Binaries up to which the whole program is solved at once."""
TURN, LEAST_TURN = 0.4, 0.05
"""s for the program of one neighbourhood; with less than the second left, none is begun."""
TURN_GAP = 0.02
"""Relative distance from the best bound at which the solver may stop in a neighbourhood: another follows."""
TOGETHER = 3
"""Sub-clusters of a neighbourhood."""
PATIENCE = 40
"""Neighbourhoods in a row without a gain after which the search ends."""
BALANCED = 1e-3
"""Sum of the relative deviations below which nobody would notice a gain."""
GAIN = 1e-4
"""Least relative gain that counts."""
PROOF = 1e-5
"""Relative gain that shows that a partition was not the best, whatever the solver says of it."""
TINY = 1e-300
"""Least mean that is divided by: where all rates or all memories are 0, the ratios are 0, too."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Partition:
    """A partition that keeps all limits."""

    assignment: np.ndarray
    """The sub-cluster of each model.   # (m,)"""
    seconds: float
    optimal: bool
    """Whether it is proved that none is better balanced."""


def find_partition(problem: PartitionProblem, *, seconds: float = 10.0, seed: int = 0) -> Partition:
    """Return the best partition that is found in time.

    Raises:
        InvalidInput: No partition keeps the limits, or none was found in time.
    """
    begin = time.perf_counter()
    _check(problem)
    assignment = _greedy(problem)
    if problem.size * problem.parts <= SMALL:
        found = solve_program(problem, seconds)
        best, took = found.assignment, time.perf_counter() - begin
        if best is not None and problem.allows(best):
            solved = Partition(assignment=best, seconds=took, optimal=found.optimal)
            return better_partition(problem, solved, assignment)
        if problem.allows(assignment):
            return Partition(assignment=assignment, seconds=took, optimal=False)
        raise _refusal(problem, found, seconds)
    if not problem.allows(assignment):
        found = solve_program(problem, seconds / 2, gap=0.5)
        if found.assignment is None or not problem.allows(found.assignment):
            raise _refusal(problem, found, seconds)
        assignment = found.assignment
    assignment = _improved(
        problem, assignment, begin + max(seconds - TURN, seconds / 2), np.random.default_rng(seed)
    )
    return Partition(assignment=assignment, seconds=time.perf_counter() - begin, optimal=False)


def better_partition(problem: PartitionProblem, found: Partition, other: np.ndarray) -> Partition:
    """Return what was found, or another partition that is at hand if it keeps the limits and is better.

    Args:
        problem: The models and limits.
        found: A partition that keeps them.
        other: The sub-cluster of each model.   # (m,)
    """
    have = problem.objective(found.assignment)
    if not problem.allows(other) or (worth := problem.objective(other)) >= have:
        return found
    return replace(found, assignment=other, optimal=found.optimal and worth >= have - PROOF * (1 + have))


def _check(problem: PartitionProblem) -> None:
    if problem.memory.sum() > problem.parts * problem.most_memory * (1 + ROUNDING):
        need, room = problem.memory.sum() / 2**20, problem.parts * problem.most_memory / 2**20
        fix = "use more partitions"
        raise InvalidInput("memory_mib", f"the models need {need:,.0f} MiB, and there are {room:,.0f}", fix)
    if problem.rate.sum() > problem.parts * problem.most_rate * (1 + ROUNDING):
        need, room = problem.rate.sum(), problem.parts * problem.most_rate
        fix = "use more partitions"
        raise InvalidInput(
            "max_rate", f"the models have {need:,.6g} requests/s, room is for {room:,.6g}", fix
        )


def _refusal(problem: PartitionProblem, found: Solved, seconds: float) -> InvalidInput:
    """Return why there is no partition."""
    if np.isfinite(problem.most_disruption):
        least = least_disruption(problem, seconds)
        if least.optimal and least.objective > problem.most_disruption:
            problem_text = f"no partition within {problem.most_disruption:g} keeps the limits"
            return InvalidInput(
                "max_disruption", problem_text, f"the least disruption is {least.objective:g}"
            )
    if found.impossible:
        return InvalidInput("partitions", "no partition keeps all limits", "use more, or raise the limits")
    return InvalidInput("time_limit_s", f"no partition was found in {seconds:g} s", "raise it")


def _greedy(problem: PartitionProblem) -> np.ndarray:
    """Return the partition before with new models added, or one from nothing, the largest model first."""
    rate_mean = max(problem.rate.sum() / problem.parts, TINY)
    memory_mean = max(problem.memory.sum() / problem.parts, TINY)
    weights = problem.rate / rate_mean, problem.memory_weight * problem.memory / memory_mean
    keeps = problem.most_disruption < np.inf
    assignment = problem.before.copy() if keeps else np.full(problem.size, NOWHERE)
    placed = assignment != NOWHERE
    sums = np.zeros((2, problem.parts))
    for row, weight in zip(sums, weights, strict=True):
        np.add.at(row, assignment[placed], weight[placed])
    memory = np.bincount(
        assignment[assignment != NOWHERE], problem.memory[assignment != NOWHERE], problem.parts
    )
    new = np.flatnonzero(~placed)
    for model in new[np.argsort(-(weights[0] + weights[1])[new], kind="stable")].tolist():
        after = np.maximum(sums[0] + weights[0][model], sums[1] + weights[1][model])
        full = memory + problem.memory[model] + problem.runtime.max(initial=0.0) > problem.most_memory
        part = int(np.argmin(after + 1e9 * full))
        assignment[model] = part
        sums[0, part] += weights[0][model]
        sums[1, part] += weights[1][model]
        memory[part] += problem.memory[model]
    return assignment


def _improved(
    problem: PartitionProblem, assignment: np.ndarray, until: float, generator: np.random.Generator
) -> np.ndarray:
    """Return a partition that is at least as good, by programs over few sub-clusters at a time."""
    best, idle = problem.objective(assignment), 0
    means = problem.rate.sum() / problem.parts, problem.memory.sum() / problem.parts
    while idle < PATIENCE and best > BALANCED and (left := until - time.perf_counter()) > LEAST_TURN:
        chosen = _neighbourhood(problem, assignment, idle, generator)
        inside = np.flatnonzero(np.isin(assignment, chosen))
        found = solve_program(
            _part(problem, assignment, inside, chosen),
            min(TURN, left),
            means=means,
            floors=_floors(problem, assignment, chosen, means),
            gap=TURN_GAP,
        )
        idle += 1
        if found.assignment is None:
            continue
        tried = assignment.copy()
        tried[inside] = chosen[found.assignment]
        if problem.allows(tried) and (worth := problem.objective(tried)) < best * (1 - GAIN):
            assignment, best, idle = tried, worth, 0
    return assignment


def _neighbourhood(
    problem: PartitionProblem, assignment: np.ndarray, idle: int, generator: np.random.Generator
) -> np.ndarray:
    """Return the sub-clusters to solve for: that of the largest deviation, its opposite, and a random one."""
    rate, memory = problem.sums(assignment)
    deviation = rate / max(rate.mean(), TINY) - 1
    other = memory / max(memory.mean(), TINY) - 1
    if np.abs(other).max() * problem.memory_weight > np.abs(deviation).max():
        deviation = other
    worst = int(np.argmax(np.abs(deviation)))
    order = np.argsort(deviation * np.sign(deviation[worst]))  # the opposite first
    rest = order[order != worst]
    chosen = [worst, *([int(rest[0])] if idle < len(rest) // 2 else [])]
    free = rest[~np.isin(rest, chosen)]
    more = min(TOGETHER, problem.parts) - len(chosen)
    return np.array([*chosen, *generator.choice(free, more, replace=False).tolist()])


def _floors(
    problem: PartitionProblem, assignment: np.ndarray, chosen: np.ndarray, means: tuple[float, float]
) -> tuple[float, float]:
    """Return the deviations of the other sub-clusters, which bound what can be gained."""
    rate, memory = problem.sums(assignment)
    outside = ~np.isin(np.arange(problem.parts), chosen)
    if not outside.any():
        return 0.0, 0.0
    return float(np.abs(rate[outside] - means[0]).max()), float(np.abs(memory[outside] - means[1]).max())


def _part(
    problem: PartitionProblem, assignment: np.ndarray, inside: np.ndarray, chosen: np.ndarray
) -> PartitionProblem:
    """Return the problem of some sub-clusters and their models; the others keep theirs."""
    place = np.full(problem.parts + 1, NOWHERE)  # the last is that of NOWHERE
    place[chosen] = np.arange(chosen.size)
    # A model that came from outside costs the same wherever it is put here, as if it were new, and its
    # unloading there is paid already.
    before = place[problem.before[inside]]
    others = np.setdiff1d(np.arange(problem.size), inside)
    spent = replace(problem, **_only(problem, others)).disruption(assignment[others])
    gone = (problem.before[inside] != NOWHERE) & (before == NOWHERE)
    spent += float(problem.move_cost[inside][gone].sum())
    return replace(
        problem,
        **{**_only(problem, inside), "before": before},
        parts=chosen.size,
        most_disruption=problem.most_disruption - spent,
    )


def _only(problem: PartitionProblem, models: np.ndarray) -> dict[str, Any]:
    names = ("rate", "memory", "runtime", "move_cost", "before")
    return {name: getattr(problem, name)[models] for name in names}


def random_partition(problem: PartitionProblem, *, seconds: float = 10.0, seed: int = 0) -> Partition | None:
    """Return the best of as many random partitions as there is time for; None if none keeps the limits."""
    begin, generator = time.perf_counter(), np.random.default_rng(seed)
    best, chosen = np.inf, None
    while time.perf_counter() - begin < seconds:
        tried = generator.integers(0, problem.parts, problem.size)
        if problem.allows(tried) and (worth := problem.objective(tried)) < best:
            best, chosen = worth, tried
    if chosen is None:
        return None
    return Partition(assignment=chosen, seconds=time.perf_counter() - begin, optimal=False)

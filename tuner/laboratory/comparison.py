"""Compares agents: sums up the runs of each, over all seeds, in one row."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from statistics import median
from typing import Any, ClassVar

from pydantic import Field

from tuner.files.stored import Part, Stored
from tuner.laboratory.agent_run import AgentRun, RunSpec
from tuner.laboratory.metrics import Figures, figures_of
from tuner.measurement import known

__all__ = ["AgentRow", "Comparison", "RunRow", "compared", "run_rows", "run_specs"]


class _Row(Part):
    """What the rows of agents and of runs have in common; None where nothing was measured or reached."""

    id: str
    """The agent."""
    windows_to_converge: float | None
    """Windows until it stayed near the oracle; None if it never did, or exact costs are not known."""
    windows_off: float | None
    """Windows whose running mean was not near the oracle's."""
    mean_cost: float | None
    regret: float | None
    """Mean exact cost over the oracle's, less 1."""
    slo_violations: float | None
    """Share of the windows that broke the SLO."""
    resource: float | None
    """Mean share of the GPU in use where there is one, else mean cores in use."""
    mean_latency: float | None
    """Mean over windows of the mean latency, s."""
    p95: float | None
    """s."""
    p99: float | None
    """s."""
    skipped: int
    """Windows that were not learned from: not finite, nothing measured, or disturbed."""


class AgentRow(_Row):
    """The figures of one agent: medians over seeds, but for what was skipped, which is of all of them.

    In the median of the windows to converge a seed in which it never did counts as the greatest.
    """

    low: float | None
    """The fewest windows to converge over seeds."""
    high: float | None
    """The most; None if a seed never converged."""
    converged: int | None
    """Seeds that converged; None where exact costs are not known."""
    seeds: int


class RunRow(_Row):
    """The figures of one run."""

    seed: int


class Comparison(Stored):
    """What `tuner compare` stores."""

    what: ClassVar[str] = "comparison"

    env: str
    workload: str
    rates: list[float]
    """Nominal loads, requests/s; empty for the environment's own."""
    arguments: dict[str, Any]
    windows: int
    """Of each run."""
    seeds: int
    seconds: float
    """How long it took."""
    command: str
    started: str = Field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    machine: str = Field(
        default_factory=lambda: (
            f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
        )
    )
    rows: list[AgentRow]
    runs: list[RunRow] = Field(default_factory=list)
    """Each agent with each seed, for statistics of one's own; empty in files from before 2026-11-29."""


def run_specs(agents: Sequence[RunSpec], seeds: int) -> list[RunSpec]:
    """Return the runs of a comparison: every agent with every seed, the same loads for all.

    All agents have the first seed, then all have the next, so that processes that take runs one by one work
    on different agents at a time: some agents take much longer than others.
    """
    return [spec.seeded(spec.seed + seed) for seed in range(seeds) for spec in agents]


def compared(runs: Sequence[AgentRun]) -> list[AgentRow]:
    """Sum up runs, a row for each agent in the order of their first runs."""
    by_agent: dict[str, list[Figures]] = {}
    for run in runs:
        by_agent.setdefault(run.spec.label, []).append(figures_of(run))
    return [_row(agent, figures) for agent, figures in by_agent.items()]


def run_rows(runs: Sequence[AgentRun]) -> list[RunRow]:
    """Sum up each run by itself, in their order."""
    names = [name for name in RunRow.model_fields if name not in ("id", "seed", "skipped")]
    found = []
    for run in runs:
        figures = figures_of(run)
        values = {name: known(getattr(figures, name), 6) for name in names}
        found.append(RunRow(id=run.spec.label, seed=run.spec.seed, skipped=figures.skipped, **values))
    return found


def _row(agent: str, figures: Sequence[Figures]) -> AgentRow:
    windows = [one.windows_to_converge for one in figures]
    names = [name for name in AgentRow.model_fields if hasattr(Figures, name) and name != "skipped"]
    medians: Mapping[str, float | None] = {
        name: _median([getattr(one, name) for one in figures]) for name in names
    }
    return AgentRow(
        id=agent,
        low=known(min(windows), 6),
        high=known(max(windows), 6),
        converged=None if all(map(math.isnan, windows)) else sum(map(math.isfinite, windows)),
        seeds=len(figures),
        skipped=sum(one.skipped for one in figures),
        **medians,
    )


def _median(values: Sequence[float]) -> float | None:
    """The median; None if it was not measured, or is infinite."""
    finite = [value for value in values if not math.isnan(value)]
    return known(median(finite), 6) if finite else None

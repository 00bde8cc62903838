"""Runs agents in processes, prints and stores how they compare; for `compare` and `evaluate`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from tuner.cli.agent_options import skipped_text
from tuner.cli.output import RunFiles, check_file

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tuner.laboratory.agent_run import AgentRun, RunSpec
    from tuner.laboratory.comparison import AgentRow, Comparison

__all__ = ["compare_runs"]

Task = TypeVar("Task")
WORDS = """[dim]oracle: the configuration with the least exact cost. windows to converge: until the running
mean of exact costs stays within 5% of the oracle's, the median of the seeds, with the least (low)
and the greatest (high). windows off: those in which it was not. mean cost: as measured, 1 is just
at the SLO. above the oracle: mean exact cost over the oracle's. resource: share of the GPU, else
cores in use.[/dim]"""
"""What the columns of the table mean."""


def compare_runs(
    function: Callable[[Task], AgentRun],
    tasks: Sequence[Task],
    base: RunSpec,
    *,
    seeds: int,
    files: RunFiles,
) -> list[AgentRun]:
    """Run agents, print their rows and store them.

    Args:
        function: Runs one; see :func:`tuner.laboratory.parallel.run_all`.
        tasks: Its arguments.
        base: What all runs share.
        seeds: Runs of each agent.
        files: Where the rows and every window go.

    Raises:
        StorageError: The files cannot be written.
    """
    from tuner.cli.console import command_line, make_console, progress_bars
    from tuner.laboratory.agent_run import knob_space
    from tuner.laboratory.comparison import Comparison, compared, run_rows
    from tuner.laboratory.parallel import run_all
    from tuner.laboratory.window_table import write_windows

    check_file(files.out, "--json")
    check_file(files.table, "--csv")
    space = knob_space(base)  # now: the files that the environment is made from may change during the runs
    begin = time.monotonic()
    runs = run_all(function, tasks, "runs", bars=progress_bars(make_console()))
    comparison = Comparison(
        env=base.env,
        workload=base.workload or "",
        rates=list(base.rates),
        arguments=base.arguments,
        windows=base.windows,
        seeds=seeds,
        seconds=round(time.monotonic() - begin, 1),
        command=command_line(),
        rows=compared(runs),
        runs=run_rows(runs),
    )
    _show(comparison)
    if files.out is not None:
        comparison.save(files.out)
        print(files.out)
    if files.table is not None:
        write_windows(runs, space, files.table)
        print(files.table)
    return runs


def _show(comparison: Comparison) -> None:
    from rich.table import Table

    from tuner.cli.console import make_console, plain
    from tuner.duration import format_duration

    words = [comparison.env, comparison.workload, f"{comparison.windows} windows, {comparison.seeds} seeds"]
    table = Table(title=", ".join(filter(None, words)), title_justify="left", header_style="bold")
    table.add_column("agent")
    for column in (
        "windows to\nconverge", "low", "high", "seeds\nconverged", "windows\noff", "mean\ncost",
        "above the\noracle", "SLO\nbroken", "mean\nlatency", "p95", "resource",
    ):  # fmt: skip
        table.add_column(column, justify="right")
    for row in comparison.rows:
        converged = "-" if row.converged is None else f"{row.converged} of {row.seeds}"
        latencies = ["-" if v is None else format_duration(v) for v in (row.mean_latency, row.p95)]
        table.add_row(
            row.id, _text(row.windows_to_converge), _text(row.low), _text(row.high),
            converged, _text(row.windows_off), _text(row.mean_cost),
            _percent(row.regret), _percent(row.slo_violations), *latencies, _text(row.resource),
        )  # fmt: skip
    console = make_console()
    console.print(table)
    console.print(WORDS, soft_wrap=True)
    if note := _ranks_differ(comparison.rows):
        console.print(plain(note), soft_wrap=True)
    for row in comparison.rows:
        if row.skipped:
            console.print(f"{row.id}: {skipped_text(row.skipped)}")


def _ranks_differ(rows: Sequence[AgentRow]) -> str:
    """Say why the mean cost and the exact cost rank agents differently, if they do; else nothing."""
    known = [row for row in rows if row.mean_cost is not None and row.regret is not None]
    by_cost = sorted(known, key=lambda row: row.mean_cost or 0.0)
    by_regret = sorted(known, key=lambda row: row.regret or 0.0)
    if len(known) < 2 or by_cost[0].id == by_regret[0].id:
        return ""
    return (
        f"{by_cost[0].id} has the least mean cost, {by_regret[0].id} is nearest to the oracle: a mean cost "
        "has the noise of the windows and the cost of changes in it; above the oracle compares the exact "
        "costs of what was chosen"
    )


def _text(value: float | None) -> str:
    return "-" if value is None else f"{value:,.4g}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"

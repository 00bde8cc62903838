"""``tuner bench``: how fast the engine, the policies and one live decision are on this machine."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tuner.experiments.benchmarks.report import BenchReport

__all__ = ["EXAMPLES", "bench"]

EXAMPLES = "Example: [bold]tuner bench engine --json engine.json[/bold]"


def bench(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="engine: requests simulated per second. scheduler: a policy alone. "
            "decision: one call from Python. kairos: matching queries, bounds of pools. "
            "fronts: requests through the dispatcher's fronts. "
            "planning: packing sessions, splitting queries. "
            "training: windows per minute in the environments.",
        ),
    ],
    out: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the rows there.")] = None,
    repeats: Annotated[
        int, typer.Option("--repeats", min=1, max=100, help="How often each is measured.")
    ] = 5,
    quick: Annotated[bool, typer.Option("--quick", help="A short version that shows that it works.")] = False,
) -> None:
    """Measure how fast the simulator and the scheduler are, beside SimPy and plain Python in the same run."""
    from tuner.cli.console import command_line, make_console, progress_bars
    from tuner.experiments.benchmarks.catalogue import run_benchmark
    from tuner.experiments.benchmarks.report import BenchOptions, BenchReport
    from tuner.files.storage import make_folder_of

    if out is not None:
        make_folder_of(out, "--json")
    options = BenchOptions(repeats=repeats, quick=quick, bars=progress_bars(make_console()))
    begin = time.monotonic()
    rows = run_benchmark(name, options)
    report = BenchReport(
        benchmark=name,
        command=command_line(),
        seconds=round(time.monotonic() - begin, 1),
        repeats=repeats,
        rows=rows,
    )
    _show(report)
    if out is not None:
        report.save(out)
        print(out)


def _show(report: BenchReport) -> None:
    from tuner.experiments.frame.table import show_rows

    show_rows(
        f"{report.benchmark} ({report.machine})",
        ("value", "baseline", "ratio"),
        [(row.id, (row.value, row.baseline, row.ratio), row.unit, row.note) for row in report.rows],
    )

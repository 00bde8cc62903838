"""``tuner experiment``: run the measurements that the documentation quotes."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tuner.experiments.result import Result

__all__ = ["EXAMPLES", "app"]

EXAMPLES = "Example: [bold]tuner experiment run triton-sweep --seeds 2 --json sweep.json[/bold]"
RESULTS = Path("experiments/results")

app = typer.Typer(
    help="Run the measurements that the documentation quotes.", epilog=EXAMPLES, no_args_is_help=True
)


@app.command("list")
def list_experiments() -> None:
    """List the experiments, what they measure, and about how long they take."""
    from rich.table import Table

    from tuner.cli.console import make_console
    from tuner.experiments.catalogue import EXPERIMENTS

    table = Table(header_style="bold")
    for column in ("name", "what it measures", "minutes"):
        table.add_column(column)
    for experiment in EXPERIMENTS.values():
        table.add_row(experiment.name, experiment.title, f"{experiment.minutes:g}")
    make_console().print(table)


@app.command("run", epilog=EXAMPLES)
def run_experiment(
    name: Annotated[str, typer.Argument(metavar="NAME", help="As in `tuner experiment list`.")],
    seeds: Annotated[int, typer.Option("--seeds", min=1, max=100, help="Seeds or repeats.")] = 3,
    quick: Annotated[bool, typer.Option("--quick", help="A short version that shows that it works.")] = False,
    out: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="[default: experiments/results/NAME.json]")
    ] = None,
) -> None:
    """Run one experiment, print its rows and store its result."""
    from tuner.cli.console import make_console
    from tuner.experiments.catalogue import Options, find
    from tuner.storage import make_folder

    experiment = find(name)
    path = out or RESULTS / f"{name}.json"
    make_folder(path.absolute().parent, "--json")
    console = make_console()
    begin = time.monotonic()
    result = experiment.run(
        Options(seeds=seeds, quick=quick, folder=path.absolute().parent, report=console.print)
    )
    result.seconds = round(time.monotonic() - begin, 1)
    result.command = " ".join(["tuner", *sys.argv[1:]])
    result.save(path)
    _show(result)
    print(path)


@app.command("page")
def write_page(
    out: Annotated[Path, typer.Option("--out", help="The page.")] = Path("docs/results.md"),
    results: Annotated[Path, typer.Option("--results", help="Where the results are stored.")] = RESULTS,
) -> None:
    """Write the documentation's page of measurements from the stored results."""
    from tuner.experiments.page import results_page
    from tuner.storage import write_atomically

    write_atomically(out, results_page(results, results.parent / "notes"))
    print(out)


def _show(result: Result) -> None:
    from rich.table import Table

    from tuner.cli.console import make_console

    table = Table(
        title=f"{result.experiment}, {result.seeds} seeds", title_justify="left", header_style="bold"
    )
    table.add_column("figure")
    for column in ("target", "measured", "low", "high"):
        table.add_column(column, justify="right")
    table.add_column("unit")
    table.add_column("note")
    for row in result.rows:
        numbers = [
            "-" if v is None else f"{v:,.4g}" for v in (row.published, row.measured, row.low, row.high)
        ]
        table.add_row(row.id, *numbers, row.unit, row.note)
    make_console().print(table)

"""``tuner experiment``: run the measurements that the documentation quotes."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import ForeignLimit

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuner.experiments.frame.catalogue import Experiment
    from tuner.experiments.frame.result import Result

__all__ = ["EXAMPLES", "app"]

EXAMPLES = "Example: [bold]tuner experiment run symphony-table2 --seeds 2 --json out.json --plot .[/bold]"
RESULTS = Path("experiments/results")

app = typer.Typer(
    help="Run the measurements that the documentation quotes.", epilog=EXAMPLES, no_args_is_help=True
)


@app.command("list")
def list_experiments() -> None:
    """List the experiments by paper, what they show, and about how long they take."""
    from rich.table import Table

    from tuner.cli.console import make_console
    from tuner.experiments.frame.catalogue import papers

    table = Table(header_style="bold")
    for column in ("paper", "name", "what it shows", "minutes"):
        table.add_column(column)
    for paper, experiments in papers().items():
        table.add_section()
        for number, experiment in enumerate(experiments):
            first = paper if number == 0 else ""
            table.add_row(first, experiment.name, experiment.title, f"{experiment.minutes:g}")
    make_console().print(table)


@app.command("run", epilog=EXAMPLES)
def run_experiment(
    name: Annotated[str, typer.Argument(metavar="NAME", help="As in `tuner experiment list`.")],
    seeds: Annotated[int, typer.Option("--seeds", min=1, max=100, help="Seeds or repeats.")] = 3,
    quick: Annotated[bool, typer.Option("--quick", help="A short version that shows that it works.")] = False,
    out: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="[default: experiments/results/NAME.json]")
    ] = None,
    foreign_limit: ForeignLimit = 0.25,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="DIR", help="Draw its figures into this folder.")
    ] = None,
) -> None:
    """Run one experiment, print its rows and store its result."""
    from tuner.cli.console import make_console, progress_bars
    from tuner.experiments.frame.catalogue import Options, find
    from tuner.storage import make_folder_of

    experiment = find(name)
    draw = _drawer(experiment, plot) if plot is not None else None
    path = out or RESULTS / f"{name}.json"
    folder = make_folder_of(path, "--json")
    console = make_console()
    begin = time.monotonic()
    result = experiment.run(
        Options(
            seeds=seeds,
            quick=quick,
            folder=folder,
            report=console.print,
            bars=progress_bars(console),
            foreign_limit=foreign_limit,
        )
    )
    result.seconds = round(time.monotonic() - begin, 1)
    result.command = " ".join(["tuner", *sys.argv[1:]])
    result.save(path)
    _show(result)
    print(path)
    for figure in draw(result) if draw is not None else ():
        print(figure)


def _drawer(experiment: Experiment, folder: Path) -> Callable[[Result], list[Path]]:
    """Check before the experiment runs that its figures can be drawn."""
    from tuner.errors import InvalidInput
    from tuner.storage import make_folder

    plot = experiment.plot
    if plot is None:
        raise InvalidInput("--plot", f"{experiment.name} has no figure", "leave the option out")
    make_folder(folder, "--plot")
    return lambda result: plot(result, folder)


@app.command("page")
def write_pages(
    docs: Annotated[Path, typer.Option("--docs", help="The documentation's folder.")] = Path("docs"),
    results: Annotated[Path, typer.Option("--results", help="Where the results are stored.")] = RESULTS,
    figures: Annotated[bool, typer.Option(help="Whether to draw the figures anew, too.")] = True,
) -> None:
    """Write the documentation's pages of measurements from the stored results."""
    from tuner.experiments.frame.catalogue import EXPERIMENTS, LIVE
    from tuner.experiments.frame.result import Result
    from tuner.experiments.page import written_pages
    from tuner.storage import make_folder, write_atomically

    images = make_folder(docs / "experiments" / "images", "--docs")
    for experiment in EXPERIMENTS.values() if figures else ():
        stored = results / f"{experiment.name}.json"
        if experiment.paper != LIVE and stored.exists() and experiment.plot is not None:
            experiment.plot(Result.load(stored), images)
    for path, text in written_pages(results, docs).items():
        write_atomically(path, text)
        print(path)


def _show(result: Result) -> None:
    from rich.table import Table

    from tuner.cli.console import make_console

    table = Table(
        title=f"{result.experiment}, {result.seeds} seeds", title_justify="left", header_style="bold"
    )
    table.add_column("figure")
    for column in ("published", "measured", "low", "high"):
        table.add_column(column, justify="right")
    table.add_column("unit")
    table.add_column("note")
    for row in result.rows:
        numbers = [
            "-" if v is None else f"{v:,.4g}" for v in (row.published, row.measured, row.low, row.high)
        ]
        table.add_row(row.id, *numbers, row.unit, row.note)
    make_console().print(table)

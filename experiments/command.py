"""``tuner experiment``: run the measurements that the documentation quotes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.exit_code import ExitCode
from tuner.cli.options import ForeignLimit
from tuner.cli.output import PlotForm, PlotFormat, check_figures
from tuner.cli.usage import UserCommand

if TYPE_CHECKING:
    from typing import Any

    from tuner.experiments.frame.about import About
    from tuner.experiments.frame.experiment import Experiment
    from tuner.experiments.frame.result import Result

__all__ = ["EXAMPLES", "app"]

EXAMPLES = "Example: [bold]tuner experiment run symphony-table2 --seeds 2 --json out.json --plot .[/bold]"
RESULTS = Path("experiments/results")
QUICK = Path("runs/experiments")
"""Where quick runs leave their results: they never take the place of a stored one."""

app = typer.Typer(
    help="Run the measurements that the documentation quotes.", epilog=EXAMPLES, no_args_is_help=True
)


@app.command("list", cls=UserCommand)
def list_experiments() -> None:
    """List the experiments by paper, what they show, and about how long they take."""
    from rich.table import Table

    from tuner.cli.console import make_console
    from tuner.experiments.frame.discovery import papers

    table = Table(header_style="bold")
    for column in ("paper", "name", "what it shows", "minutes"):
        table.add_column(column)
    for paper, experiments in papers().items():
        table.add_section()
        for number, experiment in enumerate(one.about for one in experiments):
            first = paper if number == 0 else ""
            table.add_row(first, experiment.name, experiment.title, f"{experiment.minutes:g}")
    make_console().print(table)


@app.command("run", cls=UserCommand, epilog=EXAMPLES)
def run_experiment(
    name: Annotated[str, typer.Argument(metavar="NAME", help="As in `tuner experiment list`.")],
    seeds: Annotated[int, typer.Option("--seeds", min=1, max=100, help="Seeds or repeats.")] = 3,
    quick: Annotated[bool, typer.Option("--quick", help="A short version that shows that it works.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--json",
            metavar="FILE",
            help=f"Store the result here; that of a quick run goes to {QUICK} by default.",
            show_default=f"in {RESULTS}",
        ),
    ] = None,
    foreign_limit: ForeignLimit = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="DIR", help="Draw its figures into this folder.")
    ] = None,
    plot_format: PlotFormat = None,
) -> None:
    """Run one experiment, print its rows and store its result.

    Ctrl-C ends it with the seeds that are complete: their result goes to NAME-stopped.json. Of experiments
    that measure their seeds together, triton-convergence judges those that are complete first, for some
    minutes; the others, such as sim-to-real, keep nothing.
    """
    from tuner.cli.console import command_line, make_console, progress_bars
    from tuner.experiments.frame.discovery import find
    from tuner.experiments.frame.options import ExperimentOptions, Watcher
    from tuner.experiments.frame.result import now_text
    from tuner.files.storage import make_folder_of

    kind = find(name).load()
    if foreign_limit is not None:
        _check_foreign_limit(kind.about)
    if plot is not None:
        _check_has_figure(kind)
    check_figures(plot, plot_format)
    path = out or (QUICK if quick else RESULTS) / f"{name}.json"
    folder = make_folder_of(path, "--json")
    console = make_console()
    begin, started = time.monotonic(), now_text()
    options = ExperimentOptions(seeds=seeds, quick=quick, folder=folder, foreign_limit=foreign_limit)
    measuring = kind(options, Watcher(report=console.print, bars=progress_bars(console)))
    result = measuring.run()
    if measuring.stopped:
        path = path.with_name(f"{path.stem}-stopped{path.suffix}")
    result.started, result.seconds = started, round(time.monotonic() - begin, 1)
    result.command = command_line()
    result.save(path)
    _show(result)
    print(path)
    for figure in kind.plot(result, plot, form=plot_format or PlotForm.PNG) if plot is not None else ():
        print(figure)
    if measuring.stopped:
        raise typer.Exit(ExitCode.STOPPED)


def _check_foreign_limit(about: About) -> None:
    """Check before an experiment runs that it has windows to measure again."""
    from tuner.errors import InvalidInput

    if not about.foreign_limit:
        raise InvalidInput("--foreign-limit", f"{about.name} sets no window aside by it", "leave it out")


def _check_has_figure(kind: type[Experiment[Any, Any]]) -> None:
    """Check before an experiment runs that it has a figure."""
    from tuner.errors import InvalidInput

    if not kind.has_figure():
        raise InvalidInput("--plot", f"{kind.about.name} has no figure", "leave the option out")


@app.command("same", cls=UserCommand)
def compare_results(
    before: Annotated[Path, typer.Argument(metavar="BEFORE", help="A folder with results.")],
    after: Annotated[Path, typer.Argument(metavar="AFTER", help="A folder with results of the same.")],
) -> None:
    """Say whether two runs of the same experiments have the same rows and curves; exit code 1 if not.

    Rows that say how fast a machine was are left out. Each experiment declares its own. What measures live
    servers is not compared, for it differs from run to run; exit code 2 if there is nothing else.
    """
    from tuner.cli.console import make_console
    from tuner.experiments.frame.compare import differences

    console = make_console()
    found = differences(before, after)
    for name, some in found.items():
        if some is None:
            console.print(f"{name}: not compared, it measures a live server", soft_wrap=True)
            continue
        console.print(f"{name}: {'same' if not some else f'{len(some)} differences'}", soft_wrap=True)
        for difference in some:
            console.print(f"    {difference}", soft_wrap=True, markup=False)
    if any(found.values()):
        raise typer.Exit(ExitCode.DIFFERENT)


@app.command("page", cls=UserCommand)
def write_pages(
    docs: Annotated[Path, typer.Option("--docs", help="The documentation's folder.")] = Path("docs"),
    results: Annotated[Path, typer.Option("--results", help="Where the results are stored.")] = RESULTS,
    figures: Annotated[bool, typer.Option(help="Whether to draw the figures again, too.")] = True,
) -> None:
    """Write the documentation's pages of measurements from the stored results.

    A page of which the folder has no result stays as it is; pages of several experiments show only those in
    the folder.
    """
    from tuner.experiments.frame.about import LIVE
    from tuner.experiments.frame.discovery import declared
    from tuner.experiments.frame.result import Result, has_result
    from tuner.experiments.page import check_results, written_pages
    from tuner.files.storage import make_folder, write_atomically

    check_results(results)
    images = make_folder(docs / "experiments" / "images", "--docs")
    for name, experiment in declared().items() if figures else ():
        if experiment.about.paper != LIVE and has_result(results, name):
            experiment.load().plot(Result.load(results / f"{name}.json"), images)
    for path, text in written_pages(results, docs).items():
        write_atomically(path, text)
        print(path)


def _show(result: Result) -> None:
    from tuner.experiments.frame.table import show_rows

    show_rows(
        f"{result.experiment}, {result.seeds} seeds",
        ("published", "measured", "low", "high"),
        [
            (row.id, (row.published, row.measured, row.low, row.high), row.unit, row.note)
            for row in result.rows
        ],
    )

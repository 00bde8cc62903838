"""``tuner plan query``: split the SLO of a query over its stages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.output import JsonFile, check_file, check_plot, store_json

if TYPE_CHECKING:
    from tuner.cluster.pipelines import ChosenBudgets
    from tuner.planning.queries import Query, QueryPlan

__all__ = ["EXAMPLES", "plan_query"]

EXAMPLES = """Example: [bold]tuner plan query query.yaml --json plan.json[/bold];
docs/examples/query.yaml is a file to begin with."""
MOST = 1000
"""Accelerators that are simulated."""


def plan_query(
    file: Annotated[Path, typer.Argument(metavar="FILE.yaml", help="See docs/plan-query.md.")],
    accelerators: Annotated[
        int | None,
        typer.Option(
            "--accelerators",
            min=1,
            max=MOST,
            metavar="N",
            help="Find by simulation the split with which so many accelerators serve most.",
        ),
    ] = None,
    out: JsonFile = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="PLOT.png", help="Also draw the budgets along the time; or a .svg."),
    ] = None,
) -> None:
    """Split the SLO of a query over its models so that they need the fewest accelerators.

    A query calls several models, each on the outputs of others (Nexus,
    section 6.2). The plan gives every stage a time budget and a batch size,
    and compares with an even split. With --accelerators the budgets are those
    that serve most in a simulation, and the rate is the one they serve.
    """
    from tuner.cli.console import make_console, print_notes
    from tuner.files.yaml_file import load_yaml
    from tuner.planning.queries import Query, plan_within
    from tuner.planning.queries import plan_query as make_plan
    from tuner.report.timeline import write_timeline

    query = load_yaml(file, Query)
    check_file(out, "--json")
    check_plot(plot)
    plan = make_plan(query)
    chosen = None if accelerators is None else _choose(query, accelerators)
    if chosen is not None and chosen.rate > 0:
        # At the file's rate they may be too short, as batches take longer to gather there, or far too long.
        query = query.model_copy(update={"rate": chosen.rate})
        plan = plan_within(query, chosen.budgets)
    console = make_console()
    print_notes(console, plan.notes)
    console.print(_table(plan, query))
    console.print(f"[bold]{_number(plan.accelerators)} accelerators[/bold], {_even(plan)}")
    if chosen is not None:
        console.print(
            f"[bold]{accelerators} accelerators serve {chosen.rate:.4g} queries/s[/bold] in a simulation; "
            f"{chosen.planned:.4g} by the split that needs the fewest in fractions, "
            f"{chosen.even:.4g} by an even split"
        )
    if plot is not None:
        write_timeline(plan, query, plot)
        print(plot)
    simulated = {} if chosen is None else {"simulated": chosen.to_json() | {"accelerators": accelerators}}
    store_json(out, plan.to_json() | simulated)


def _choose(query: Query, accelerators: int) -> ChosenBudgets:
    from tuner.cluster.pipelines import PipelineScenario, choose_budgets

    return choose_budgets(PipelineScenario(query=query, policy="nexus", accelerators=accelerators))


def _even(plan: QueryPlan) -> str:
    if plan.even_split is None or plan.gain is None:
        return "where an even split of the SLO leaves a stage too little time for any batch"
    more = "no fewer than" if plan.gain < 1 + 1e-9 else f"{plan.gain - 1:.1%} more queries on each than with"
    return f"{more} an even split of the SLO, which needs {_number(plan.even_split)}"


def _table(plan: QueryPlan, query: Query) -> object:
    from tuner.cli.console import make_table, plain

    title = f"{len(plan.stages)} stages within {query.slo_ms:g} ms at {query.rate:g} queries/s"
    numbers = ("requests/s", "begins, ms", "budget, ms", "batch", "executes, ms", "accelerators")
    table = make_table(title, ["stage"], numbers)
    for stage in plan.stages:
        table.add_row(
            plain(stage.name),
            f"{stage.rate:,.6g}",
            f"{stage.begin * 1e3:.1f}",
            f"{stage.budget * 1e3:.1f}",
            str(stage.batch),
            f"{stage.latency * 1e3:.1f}",
            _number(stage.accelerators),
        )
    return table


def _number(value: float) -> str:
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"

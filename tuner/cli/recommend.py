"""``tuner recommend``: say what would serve better, and change nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import (
    Arrival,
    ForeignLimit,
    Goal,
    Knobs,
    Policy,
    Rate,
    Shapes,
    SliPrometheus,
    SliQuery,
    SliToken,
    SloText,
    Target,
    Window,
    grids,
    indicator,
    shapes,
    window_seconds,
)

if TYPE_CHECKING:
    from tuner.knobs import KnobSpace
    from tuner.laboratory.advice import Advice
    from tuner.objective import Objective

__all__ = ["EXAMPLES", "recommend"]

EXAMPLES = """Example: [bold]tuner recommend triton://127.0.0.1:8001/resnet50 --slo p95=30ms[/bold]"""


def recommend(
    target: Target,
    slo: SloText,
    goal: Goal = "latency",
    rate: Rate = None,
    arrival: Arrival = None,
    shape: Shapes = None,
    foreign_limit: ForeignLimit = 0.25,
    sli_prometheus: SliPrometheus = None,
    sli_query: SliQuery = None,
    sli_token: SliToken = None,
    knobs: Knobs = None,
    window: Window = "5s",
    windows: Annotated[int, typer.Option("--windows", min=1, help="How many windows to watch.")] = 3,
    policy: Policy = None,
    out: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Also store it.")] = None,
) -> None:
    """Watch a server for a few windows and recommend a configuration for the load it has. Changes nothing.

    Without --policy a model of the server is fitted to what was watched and every configuration simulated.
    """
    from tuner.cli.console import make_console, make_progress
    from tuner.laboratory.advice import advise
    from tuner.objective import Objective, parse_slo
    from tuner.profiler.attachment import attach
    from tuner.storage import write_atomically

    slo_value, seconds = parse_slo(slo), window_seconds(window)
    console = make_console()
    with attach(
        target,
        grids=grids(knobs),
        rate=rate,
        arrival=arrival,
        shapes=shapes(shape),
        foreign_limit=foreign_limit,
        indicator=indicator(
            sli_prometheus, sli_query, sli_token, statistic=slo_value.statistic, window=seconds
        ),
    ) as attachment:
        objective = Objective(slo=slo_value, goal=goal, cores=attachment.host.cores)
        agent = None
        if policy is not None:
            from tuner.agents.rrl import RRL

            agent = RRL.load(policy, attachment.space)
        with make_progress(console) as progress:
            task = progress.add_task("watching", total=windows)
            watched = []
            for _ in range(windows):
                watched.append(attachment.profiler.measure(seconds))
                progress.advance(task)
        present = attachment.space.nearest(attachment.backend.current())
        advice = advise(
            attachment.space, objective, present, watched, agent=agent, cores=attachment.host.cores
        )
        _show(advice, attachment.space, objective)
        for note in attachment.description.notes:
            console.print(f"[yellow]note:[/yellow] {note}")
    if out is not None:
        write_atomically(out, json.dumps(advice.to_json(), indent=1) + "\n")
        print(out)


def _show(advice: Advice, space: KnobSpace, objective: Objective) -> None:
    from rich.table import Table

    from tuner.cli.console import configuration_text, make_console
    from tuner.duration import format_duration

    console = make_console()
    statistic = objective.slo.statistic
    table = Table(
        title=f"{objective} at {advice.rate:.0f} requests/s", title_justify="left", header_style="bold"
    )
    for name in ("", "configuration"):
        table.add_column(name)
    for name in (f"{statistic} measured", f"{statistic} expected", "CPU expected, cores", "cost"):
        table.add_column(name, justify="right")
    for row in advice.rows:
        table.add_row(
            row.name,
            configuration_text(space, row.configuration),
            format_duration(row.measured),
            format_duration(row.expected),
            "-" if row.cpu is None else f"{row.cpu:.2f}",
            f"{row.cost:.2f}",
        )
    console.print(table)
    for sentence in advice.reasons:
        console.print(sentence)

"""``tuner recommend``: say what would serve better, and change nothing."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import MOST_WINDOWS, Policy, Target, with_grids_of
from tuner.cli.output import JsonFile, check_file, store_json
from tuner.cli.signature import Fields, fields_as_options
from tuner.setting import Setting

if TYPE_CHECKING:
    from tuner.knobs import Grids, KnobSpace
    from tuner.laboratory.advice import Advice, AdviceRow
    from tuner.measurement import Measurement
    from tuner.objective import Objective
    from tuner.profiler.attachment import Attachment

__all__ = ["EXAMPLES", "recommend", "with_what_runs"]

EXAMPLES = """Example: [bold]tuner recommend triton://127.0.0.1:8001/resnet50 --slo p95=30ms[/bold]"""
CHANGE_COST = (
    "Weight of what changes cost, as in the training of the policy; without --policy it changes nothing."
)


@fields_as_options
def recommend(
    target: Target,
    setting: Annotated[
        Setting,
        Fields(
            "slo", "objective", "change_cost", "rate", "arrival", "shapes", "foreign_limit",
            "sli_prometheus", "sli_query", "sli_token_file", "grids", "window",
            help={"change_cost": CHANGE_COST},
        ),
    ],
    windows: Annotated[
        int, typer.Option("--windows", min=1, max=MOST_WINDOWS, help="How many windows to watch.")
    ] = 3,
    policy: Policy = None,
    out: JsonFile = None,
) -> None:  # fmt: skip
    """Watch a server for a few windows and recommend a configuration for the load it has. Changes nothing.

    Without --policy the neural estimator says what every configuration would cost, given what was watched.
    """
    from tuner.cli.console import make_console, print_notes
    from tuner.cli.session import check_indicator
    from tuner.laboratory.advice import advise
    from tuner.profiler.attachment import attach_for, require_resource

    check_indicator(setting)
    check_file(out, "--json")
    if policy is not None:
        setting = with_grids_of(policy, setting)
    elif setting.grids:
        setting = replace(setting, grids=with_what_runs(setting.grids, target))
    with attach_for(setting, target) as attachment:
        objective = setting.objective_on(attachment.host.cores)
        require_resource(attachment, objective.goal)
        agent = None
        if policy is not None:
            from tuner.agents.catalogue import load_agent

            agent = load_agent(policy, attachment.space, objective=objective, cores=attachment.cores)
        watched = _watch(attachment, setting.seconds, windows)
        running = attachment.backend.current()
        advice = advise(attachment.space, objective, running, watched, agent=agent)
        _show(advice, attachment.space, objective)
        print_notes(make_console(), attachment.description.notes)
    store_json(out, advice.to_json())


def with_what_runs(grids: Grids, target: str) -> Grids:
    """Return grids that contain what the server runs, so that it is compared as itself with the others.

    Args:
        grids: Those that the user has chosen.
        target: The server.
    """
    from contextlib import closing

    from tuner.adapters import connect
    from tuner.errors import InvalidInput
    from tuner.profiler.load.in_flight import IN_FLIGHT

    of_server = {name: grid for name, grid in grids.items() if name != IN_FLIGHT}
    with closing(connect(target, of_server)) as backend:
        running = backend.current()
        if backend.space.covers(running):
            return grids
    wider = {name: tuple(sorted({*grid, running.get(name, grid[0])})) for name, grid in of_server.items()}
    try:
        connect(target, wider).close()
    except InvalidInput:  # the server runs what it could not be set to
        return grids
    return {**grids, **wider}


def _watch(attachment: Attachment, seconds: float, windows: int) -> list[Measurement]:
    """Measure windows behind a progress bar."""
    from tuner.cli.console import make_console, make_progress

    with make_progress(make_console()) as progress:
        return [
            attachment.profiler.measure(seconds)
            for _ in progress.track(range(windows), description="watching")
        ]


def _show(advice: Advice, space: KnobSpace, objective: Objective) -> None:
    from rich.table import Table

    from tuner.cli.console import configuration_text, make_console, number_text, plain
    from tuner.duration import format_latency

    console = make_console()
    statistic = objective.slo.statistic
    table = Table(
        title=f"{objective} at {advice.rate:.0f} requests/s", title_justify="left", header_style="bold"
    )
    for name in ("", "configuration"):
        table.add_column(name)
    for name in (f"{statistic} measured", f"{statistic} expected", "cost"):
        table.add_column(name, justify="right")
    for row in advice.rows:
        table.add_row(
            row.name,
            configuration_text(space, row.configuration),
            format_latency(row.measured, row.cut_off),
            _expected(row),
            number_text(row.cost, ".2f"),
        )
    console.print(table)
    for sentence in advice.reasons:
        console.print(plain(sentence))


def _expected(row: AdviceRow) -> str:
    """Return the latency that is expected, with its uncertainty."""
    from tuner.duration import format_duration

    sure = "" if math.isnan(row.uncertainty) else f" ±{row.uncertainty:.0%}"
    return f"{format_duration(row.expected)}{sure}"

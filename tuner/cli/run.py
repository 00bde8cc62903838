"""``tuner run``: keep a live server inside its SLO."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.options import (
    Arrival,
    ChangeCost,
    ForeignLimit,
    Goal,
    Knobs,
    Policy,
    Rate,
    Seed,
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

__all__ = ["EXAMPLES", "run"]

EXAMPLES = """Examples: [bold]tuner run triton://127.0.0.1:8001/resnet50 --slo p95=30ms[/bold]
· [bold]tuner run sim://mlp --slo p95=30ms --rate 300 --windows 40[/bold]"""


def run(
    target: Target,
    slo: SloText,
    goal: Goal = "latency",
    change_cost: ChangeCost = 0.0,
    rate: Rate = None,
    arrival: Arrival = None,
    shape: Shapes = None,
    foreign_limit: ForeignLimit = 0.25,
    sli_prometheus: SliPrometheus = None,
    sli_query: SliQuery = None,
    sli_token: SliToken = None,
    knobs: Knobs = None,
    window: Window = "5s",
    windows: Annotated[int, typer.Option("--windows", min=0, help="Stop after so many; 0 goes on.")] = 0,
    policy: Policy = None,
    save_policy: Annotated[
        Path | None, typer.Option("--save-policy", metavar="DIR", help="Save what was learned at the end.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Where report and state go. [default: runs/TIME]"),
    ] = None,
    restore: Annotated[
        bool,
        typer.Option("--restore", help="At the end put back what the server ran before, not the best found."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Decide and explain, but change nothing.")
    ] = False,
    seed: Seed = 0,
) -> None:
    """Tune a live server toward its SLO, safely, until stopped.

    Ends with the best configuration that was seen to keep the SLO (or with the original one, --restore).
    """
    from tuner.cli.session import TuningSession
    from tuner.objective import parse_slo
    from tuner.profiler.attachment import attach

    slo_value = parse_slo(slo)
    seconds = window_seconds(window)
    with attach(
        target,
        grids=grids(knobs),
        rate=rate,
        arrival=arrival,
        seed=seed,
        shapes=shapes(shape),
        foreign_limit=foreign_limit,
        indicator=indicator(
            sli_prometheus, sli_query, sli_token, statistic=slo_value.statistic, window=seconds
        ),
    ) as attachment:
        session = TuningSession.start(
            attachment,
            slo=slo_value,
            goal=goal,
            change_cost=change_cost,
            window=seconds,
            policy=policy,
            out=out,
            apply=not dry_run,
            seed=seed,
            command=" ".join(["tuner", *sys.argv[1:]]),
        )
        with session:
            try:
                session.windows(windows)
            except KeyboardInterrupt:
                session.console.print("stopping; leaving the server in good order")
            session.finish(restore=restore)
            if save_policy is not None:
                session.agent.save(save_policy)
                session.console.print(f"policy saved to {save_policy}")

"""``tuner goodput``: the highest rate that a cluster serves well."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.mixed import goodput_mixed, is_mixed
from tuner.cli.scenario import File, Out, Seconds, Seed, load_scenario, outcome_table, save

if TYPE_CHECKING:
    from tuner.cluster.goodput import Trial

__all__ = ["EXAMPLES", "goodput"]

LIMIT = "1%"

EXAMPLES = """Example: [bold]tuner goodput cluster.yaml --json goodput.json[/bold];
docs/examples/cluster.yaml is a file to begin with, mixed.yaml beside it one of mixed instances."""


def goodput(
    file: File,
    out: Out = None,
    overall: Annotated[
        bool,
        typer.Option("--overall", help="Hold all requests together to the limit, not those of each session."),
    ] = False,
    limit: Annotated[
        str, typer.Option("--limit", metavar="SHARE", help="Requests that may be late or dropped.")
    ] = LIMIT,
    seed: Seed = None,
    seconds: Seconds = None,
) -> None:
    """Search the highest total rate at which at most 1 % of each session's requests are late or dropped.

    All rates of the file are multiplied by the same number. A file with
    `instances` is a mixed cluster, whose sessions each have a `quantile` that
    must be within QoS: docs/mixed-instances.md.
    """
    from tuner.cli.console import make_console, make_progress
    from tuner.cluster.goodput import goodput as search
    from tuner.errors import InvalidInput

    if is_mixed(file):
        if seconds is not None:
            raise InvalidInput("--seconds", "a mixed cluster is measured over its queries", "write `queries`")
        if overall or limit != LIMIT:
            problem = (
                "the sessions of a mixed cluster each have a `quantile`, which says how many may be late"
            )
            raise InvalidInput("--overall" if overall else "--limit", problem, "write it there")
        goodput_mixed(file, out, seed)
        return
    share = _share(limit)
    scenario = load_scenario(file, seed, seconds, out)
    console = make_console()
    with make_progress(console) as progress:
        task = progress.add_task("searching", total=None)

        def show(trial: Trial) -> None:
            text = f"{trial.rate:,.0f} requests/s: {trial.bad_rate:.2%} bad"
            progress.update(task, advance=1, description=text)

        found = search(scenario, limit=share, overall=overall, progress=show)
    console.print(outcome_table(scenario, found.outcome))
    whose = "all" if overall else "each session's"
    most = f"{100 * share:g} % of {whose} requests late or dropped"
    if found.rate:
        console.print(f"[bold]{found.rate:,.0f} requests/s[/bold] with at most {most}")
    else:
        console.print(f"[bold]no rate[/bold] with at most {most}; the table shows the lowest tried")
    save(out, scenario, found.outcome.seconds, found.to_json())


def _share(text: str) -> float:
    """Read ``1%`` or ``0.01``."""
    from tuner.errors import InvalidInput

    percent = text.strip().endswith("%")
    try:
        share = float(text.strip().removesuffix("%")) / (100 if percent else 1)
    except ValueError:
        share = math.nan
    if not 0 <= share < 1:
        raise InvalidInput("--limit", f"'{text}' is not a share from 0 to below 1", "write 1% or 0.01")
    return share

"""``tuner goodput``: the highest rate that a cluster serves well."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.console import rate_text
from tuner.cli.output import JsonFile
from tuner.cli.scenario import (
    File,
    Seconds,
    Seed,
    load_scenario,
    outcome_json,
    outcome_table,
    save,
    with_threshold,
)

if TYPE_CHECKING:
    from tuner.cluster.goodput import TriedRate
    from tuner.cluster.scenario import Scenario

__all__ = ["EXAMPLES", "goodput"]

EXAMPLES = """Example: [bold]tuner goodput cluster.yaml --json goodput.json[/bold];
docs/examples/cluster.yaml is a file to begin with, mixed.yaml beside it one of mixed instances."""


def goodput(
    file: File,
    out: JsonFile = None,
    overall: Annotated[
        bool,
        typer.Option("--overall", help="Hold all requests together to the limit, not those of each session."),
    ] = False,
    limit: Annotated[
        str | None,
        typer.Option(
            "--limit",
            metavar="SHARE",
            help="Requests that may be late or dropped, instead of what each session's quantile leaves (1%).",
        ),
    ] = None,
    seed: Seed = None,
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, max=100, help="Searches, each with its own seed, for the spread.")
    ] = 3,
    seconds: Seconds = None,
) -> None:
    """Search the highest total rate at which every session has its quantile of requests within its SLO.

    Without a `quantile` at most 1 % of a session's requests may be late or
    dropped. All rates of the file are multiplied by the same number.
    """
    from tuner.cli.console import make_console, make_progress, print_notes
    from tuner.cluster.confidence import doubts, other_rates
    from tuner.cluster.goodput import Good
    from tuner.cluster.goodput import goodput as search

    share = None if limit is None else _share(limit)
    good = Good(share, overall)
    scenario = load_scenario(file, "goodput", seed, seconds, {"--json": out})
    console = make_console()
    print_notes(console, scenario.notes)
    with make_progress(console) as progress:
        task = progress.add_task("searching", total=None)

        def show(tried: TriedRate) -> None:
            text = f"{rate_text(tried.rate)} requests/s: {tried.bad_rate:.2%} bad"
            progress.update(task, advance=1, description=text)

        scenario = with_threshold(scenario, lambda text: progress.update(task, description=text), good)
        found = search(scenario, good=good, progress=show)
        progress.update(task, description="other seeds")
        others = other_rates(scenario, found, seeds - 1, good)
    print_notes(console, doubts(scenario, found.outcome, found.rate, good))
    low, high = min((found.rate, *others)), max((found.rate, *others))
    console.print(outcome_table(scenario, found.outcome))
    most = _limit_text(scenario, share, overall)
    if found.rate:
        spread = f" ({rate_text(low)} to {rate_text(high)} with {seeds} seeds)" if others else ""
        console.print(f"[bold]{rate_text(found.rate)} requests/s[/bold]{spread} with at most {most}")
    else:
        console.print(f"[bold]no rate[/bold] with at most {most}; the table shows the lowest tried")
    content = {**outcome_json(scenario, found.outcome), "rate": found.rate}
    spread_json = {"low": low, "high": high, "seeds": 1 + len(others)}
    save(out, scenario, found.outcome.seconds, {"rate": found.rate, **content, **spread_json})


def _limit_text(scenario: Scenario, limit: float | None, overall: bool) -> str:
    """Return what may be late or dropped."""
    whose = "all" if overall else "each session's"
    shares = {1 - session.quantile for session in scenario.sessions} if limit is None else {limit}
    share = f"{100 * shares.pop():g} %" if len(shares) == 1 else "what its quantile leaves"
    return f"{share} of {whose} requests late or dropped"


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

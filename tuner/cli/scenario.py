"""What ``tuner simulate`` and ``tuner goodput`` share: the scenario's file, and how an outcome is shown."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tuner.cluster.outcome import Outcome, SessionOutcome
    from tuner.cluster.scenario import Scenario

__all__ = ["File", "Out", "Seconds", "Seed", "load_scenario", "outcome_table", "save"]

ROWS = 40
"""Sessions in the table; of more, those with the highest bad rate."""

File = Annotated[Path, typer.Argument(metavar="FILE.yaml", help="The scenario; see docs/simulate.md.")]
Out = Annotated[Path | None, typer.Option("--json", metavar="OUT", help="Also store the result here.")]
Seed = Annotated[int | None, typer.Option("--seed", min=0, help="Instead of the file's.")]
Seconds = Annotated[
    float | None,
    typer.Option("--seconds", min=0.001, max=1e7, help="Measured time, instead of the file's."),
]


def load_scenario(path: Path, seed: int | None, seconds: float | None, *folders: Path | None) -> Scenario:
    """Read the scenario's file, after checking that results can be stored.

    Args:
        path: The file.
        seed: Instead of the file's, if given.
        seconds: Instead of the file's, if given.
        folders: Files that are to be written; None for those not wanted.

    Raises:
        TunerError: The file has mistakes, or a folder cannot be written.
    """
    from tuner.cluster.scenario import Scenario
    from tuner.errors import InvalidInput
    from tuner.storage import make_folder_of
    from tuner.yaml_file import load_yaml

    scenario = load_yaml(path, Scenario)
    for file in folders:
        if file is not None:
            make_folder_of(file, str(file))
    given = {"seed": seed, "seconds": seconds}
    changed = scenario.model_copy(update={name: value for name, value in given.items() if value is not None})
    if seconds is not None and (problem := changed.too_many_requests()):
        raise InvalidInput("--seconds", problem)
    return changed


def save(path: Path | None, scenario: Scenario, seconds: float, content: dict[str, Any]) -> None:
    """Store a result with what it is of, and print where; does nothing without a path."""
    from tuner.storage import write_atomically

    if path is None:
        return
    head = {"policy": scenario.policy, "seed": scenario.seed, "seconds": round(seconds, 9)}
    write_atomically(path, json.dumps({**head, **content}, indent=1, allow_nan=False) + "\n")
    print(path)


def outcome_table(scenario: Scenario, outcome: Outcome) -> object:
    """Return a table with a row for each session, and one for all together if there are several."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    count = len(outcome.utilisation)
    title = f"{scenario.policy}, {count} accelerator{'s' * (count > 1)} {outcome.mean_utilisation:.0%} busy"
    table = Table(title=title, title_justify="left", header_style="bold", box=SIMPLE_HEAD)
    table.add_column("session", no_wrap=True)
    for name in ("SLO ms", "requests/s", "good %", "dropped %", "late %"):
        table.add_column(name, justify="right")
    for name in ("p50 ms", "p95 ms", "p99 ms", "batch", "queueing ms, max"):
        table.add_column(name, justify="right")
    shown = list(outcome.sessions)
    if len(shown) > ROWS:
        shown = sorted(shown, key=lambda session: -session.bad_rate)[:ROWS]
        table.caption = f"the {ROWS} sessions of {len(outcome.sessions)} with the highest bad rate"
    for session in shown:
        table.add_row(*_row(session))
    if len(outcome.sessions) > 1:
        good = sum(session.good for session in outcome.sessions)
        dropped = sum(session.dropped for session in outcome.sessions)
        late = sum(session.late for session in outcome.sessions)
        shares = _shares(outcome.requests, good, dropped, late)
        table.add_row("all", "", f"{outcome.rate:,.0f}", *shares, style="bold")
    return table


def _row(session: SessionOutcome) -> list[str]:
    times = [session.quantile(share) * 1e3 for share in (0.50, 0.95, 0.99)]
    return [
        session.name,
        f"{session.slo * 1e3:g}",
        f"{session.rate:,.0f}",
        *_shares(session.requests, session.good, session.dropped, session.late),
        *(_number(time) for time in times),
        _number(session.mean_batch),
        _number(session.max_queueing * 1e3),
    ]


def _shares(requests: int, *counts: int) -> list[str]:
    return [f"{100 * count / requests:.2f}" if requests else "-" for count in counts]


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:,.1f}"

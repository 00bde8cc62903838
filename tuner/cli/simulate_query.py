"""``tuner simulate`` of a query: stages that call each other, each with deadlines of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuner.cluster.pipelines import PipelineOutcome, PipelineScenario

__all__ = ["simulate_query"]


def simulate_query(file: Path, out: Path | None, seed: int | None, seconds: float | None) -> None:
    """Simulate the query of a file, and show how its stages served it.

    Raises:
        TunerError: The file has mistakes, or the result cannot be stored.
    """
    from tuner.cli.console import make_console
    from tuner.cluster.pipelines import PipelineScenario, simulate_pipeline
    from tuner.files.storage import make_folder_of, write_atomically
    from tuner.files.yaml_file import load_yaml

    given = {"seed": seed, "seconds": seconds}
    scenario = load_yaml(file, PipelineScenario).model_copy(
        update={name: value for name, value in given.items() if value is not None}
    )
    if out is not None:
        make_folder_of(out, "--json")
    outcome = simulate_pipeline(scenario)
    console = make_console()
    console.print(_table(scenario, outcome))
    console.print(
        f"{100 * outcome.bad_rate:.2f} % of {outcome.queries:,} queries late or dropped; "
        f"{100 * outcome.wasted:.1f} % of the accelerators' work was for them"
    )
    if out is not None:
        head = {
            "policy": scenario.policy,
            "deadlines": scenario.deadlines,
            "seed": scenario.seed,
            "seconds": scenario.seconds,
        }
        write_atomically(out, json.dumps(head | outcome.to_json(), indent=1, allow_nan=False) + "\n")
        print(out)


def _table(scenario: PipelineScenario, outcome: PipelineOutcome) -> object:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from tuner.cli.console import plain

    title = (
        f"{outcome.good_rate:.1f} good queries/s on {scenario.accelerators} accelerators under "
        f"{scenario.policy} with {scenario.deadlines} deadlines"
    )
    table = Table(title=title, title_justify="left", header_style="bold", box=SIMPLE_HEAD)
    table.add_column("stage")
    for name in ("budget ms", "requests/s", "dropped %", "batch"):
        table.add_column(name, justify="right")
    for stage, session in zip(scenario.plan.stages, outcome.stages.sessions, strict=True):
        table.add_row(
            plain(stage.name),
            f"{stage.budget * 1e3:.1f}",
            f"{session.rate:,.1f}",
            f"{100 * session.dropped / max(session.requests, 1):.2f}",
            f"{session.mean_batch:.1f}",
        )
    return table

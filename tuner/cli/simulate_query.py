"""``tuner simulate`` of a query: stages that call each other, each with deadlines of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tuner.cli.output import check_file, store_json

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
    from tuner.errors import InvalidInput
    from tuner.files.yaml_file import load_yaml

    given = {"seed": seed, "seconds": seconds}
    scenario = load_yaml(file, PipelineScenario).model_copy(
        update={name: value for name, value in given.items() if value is not None}
    )
    if seconds is not None and (problem := scenario.too_many_requests()):
        raise InvalidInput("--seconds", problem)
    check_file(out, "--json")
    outcome = simulate_pipeline(scenario)
    console = make_console()
    console.print(_table(scenario, outcome))
    console.print(
        f"{100 * outcome.bad_rate:.2f} % of {outcome.queries:,} queries late or dropped; "
        f"{100 * outcome.wasted:.1f} % of the accelerators' work was for them"
    )
    head = {name: getattr(scenario, name) for name in ("policy", "deadlines", "seed", "seconds")}
    store_json(out, head | outcome.to_json())


def _table(scenario: PipelineScenario, outcome: PipelineOutcome) -> object:
    from tuner.cli.console import make_table, number_text, plain

    title = (
        f"{outcome.good_rate:.1f} good queries/s on {scenario.accelerators} accelerators under "
        f"{scenario.policy} with {scenario.deadlines} deadlines"
    )
    table = make_table(title, ["stage"], ["budget ms", "requests/s", "dropped %", "batch"])
    for stage, session in zip(scenario.plan.stages, outcome.stages.sessions, strict=True):
        table.add_row(
            plain(stage.name),
            f"{stage.budget * 1e3:.1f}",
            f"{session.rate:,.1f}",
            f"{100 * session.dropped / max(session.requests, 1):.2f}",
            number_text(session.mean_batch, ".1f"),
        )
    return table

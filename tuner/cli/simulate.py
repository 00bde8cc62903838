"""``tuner simulate``: run a cluster in virtual time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.output import JsonFile
from tuner.cli.scenario import (
    File,
    Seconds,
    Seed,
    bad_text,
    epochs_table,
    load_scenario,
    outcome_json,
    outcome_table,
    save,
    with_threshold,
)
from tuner.cli.simulate_query import simulate_query

if TYPE_CHECKING:
    from rich.console import Console

    from tuner.cluster.scenario import Scenario
    from tuner.scheduling.log import EventLog

__all__ = ["EXAMPLES", "simulate"]

EXAMPLES = """Example: [bold]tuner simulate cluster.yaml --json outcome.json[/bold];
docs/examples/cluster.yaml is a file to begin with, mixed.yaml beside it one of mixed instances."""

TRACED = 300_000
"""Events and commands in a trace; viewers cope with about as many."""


def simulate(
    file: File,
    out: JsonFile = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace", metavar="TRACE.json", help="Also write a Chrome trace, for ui.perfetto.dev to show."
        ),
    ] = None,
    metrics: Annotated[
        Path | None,
        typer.Option(
            "--metrics",
            metavar="FILE.prom",
            help="With a planner: the accelerators desired.",
        ),
    ] = None,
    seed: Seed = None,
    seconds: Seconds = None,
) -> None:
    """Simulate a cluster that serves models under a policy, and show how it served them.

    The cluster has accelerators, or instances of mixed types that are rented:
    docs/mixed-instances.md. With a `planner` it is planned again every
    epoch, from the requests that came; a `query` calls several models, one
    after the other: docs/simulate.md.
    """
    from tuner.cli.console import make_console, print_notes
    from tuner.files.yaml_file import keys_of

    if "query" in keys_of(file):
        for path, option in ((trace, "--trace"), (metrics, "--metrics")):
            _refuse(path, option, "is not written for a query")
        simulate_query(file, out, seed, seconds)
        return
    outputs = {"--json": out, "--trace": trace, "--metrics": metrics}
    scenario = load_scenario(file, "simulate", seed, seconds, outputs)
    console = make_console()
    print_notes(console, scenario.notes)
    if scenario.planner is None:
        _refuse(metrics, "--metrics", "needs a scenario with a planner")
        _simulate_once(scenario, console, out, trace)
    else:
        _refuse(trace, "--trace", "is not written with a planner")
        _simulate_epochs(scenario, console, out, metrics, file.stem)


def _refuse(path: Path | None, option: str, why: str) -> None:
    from tuner.errors import InvalidInput

    if path is not None:
        raise InvalidInput(option, why, "leave it out")


def _simulate_once(scenario: Scenario, console: Console, out: Path | None, trace: Path | None) -> None:
    """Simulate a cluster without a planner, and show how it served."""
    from tuner.cli.console import make_progress, print_notes
    from tuner.cluster import EventLog
    from tuner.cluster import simulate as run
    from tuner.cluster.confidence import doubts

    log = EventLog(TRACED) if trace is not None else None
    with make_progress(console) as progress:
        task = progress.add_task("simulating", total=100)
        scenario = with_threshold(scenario, lambda text: progress.update(task, description=text))
        outcome = run(
            scenario,
            log=log,
            progress=lambda share: progress.update(task, completed=int(100 * share)),
        )
    print_notes(console, doubts(scenario, outcome))
    console.print(outcome_table(scenario, outcome))
    console.print(bad_text(outcome))
    if trace is not None and log is not None:
        _save_trace(trace, [session.name for session in scenario.each_session], log)
    save(out, scenario, outcome.seconds, outcome_json(scenario, outcome))


def _save_trace(path: Path, names: list[str], log: EventLog) -> None:
    from tuner.cluster import chrome_trace
    from tuner.files.storage import write_atomically

    write_atomically(path, json.dumps(chrome_trace(log, names)))
    print(path if log.complete else f"{path} (the first {TRACED:,} events)")


def _simulate_epochs(
    scenario: Scenario, console: Console, out: Path | None, metrics: Path | None, name: str
) -> None:
    """Simulate a cluster of that name under a planner, and show each of its intervals."""
    from tuner.cli.console import make_progress, print_notes
    from tuner.cluster.confidence import doubts
    from tuner.cluster.epochs import simulate_epochs

    with make_progress(console) as progress:
        task = progress.add_task("simulating", total=100)
        run = simulate_epochs(
            scenario, progress=lambda share: progress.update(task, completed=int(100 * share))
        )
    print_notes(console, doubts(scenario, run.outcome))
    console.print(epochs_table(run))
    console.print(outcome_table(scenario, run.outcome))
    content = outcome_json(scenario, run.outcome) | {"planner": scenario.planner} | run.to_json()
    save(out, scenario, run.outcome.seconds, content)
    if metrics is not None:
        _save_metrics(metrics, run.records[-1].desired, name)


def _save_metrics(path: Path, desired: int, cluster: str) -> None:
    from tuner.files.storage import write_atomically
    from tuner.planning.autoscale import metric_text

    write_atomically(path, metric_text(desired, cluster))
    print(path)

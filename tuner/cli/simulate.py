"""``tuner simulate``: run a cluster in virtual time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.scenario import (
    File,
    Out,
    Seconds,
    Seed,
    load_scenario,
    outcome_json,
    outcome_table,
    save,
    with_threshold,
)

if TYPE_CHECKING:
    from tuner.scheduling.log import EventLog

__all__ = ["EXAMPLES", "simulate"]

EXAMPLES = """Example: [bold]tuner simulate cluster.yaml --json outcome.json[/bold];
docs/examples/cluster.yaml is a file to begin with, mixed.yaml beside it one of mixed instances."""

TRACED = 300_000
"""Events and commands in a trace; viewers cope with about as many."""


def simulate(
    file: File,
    out: Out = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace", metavar="TRACE.json", help="Also write a Chrome trace, for ui.perfetto.dev to show."
        ),
    ] = None,
    seed: Seed = None,
    seconds: Seconds = None,
) -> None:
    """Simulate a cluster that serves models under a policy, and show how it served them.

    The cluster has accelerators, or instances of mixed types that are rented:
    docs/mixed-instances.md.
    """
    from tuner.cli.console import make_console, make_progress, print_notes
    from tuner.cluster import EventLog
    from tuner.cluster import simulate as run

    scenario = load_scenario(file, "simulate", seed, seconds, out, trace)
    console = make_console()
    print_notes(console, scenario.notes)
    log = EventLog(TRACED) if trace is not None else None
    with make_progress(console) as progress:
        task = progress.add_task("simulating", total=100)
        scenario = with_threshold(scenario, lambda text: progress.update(task, description=text))
        outcome = run(
            scenario,
            log=log,
            progress=lambda share: progress.update(task, completed=int(100 * share)),
        )
    console.print(outcome_table(scenario, outcome))
    if trace is not None and log is not None:
        _save_trace(trace, [session.name for session in scenario.each_session], log)
    save(out, scenario, outcome.seconds, outcome_json(scenario, outcome))


def _save_trace(path: Path, names: list[str], log: EventLog) -> None:
    from tuner.cluster import chrome_trace
    from tuner.storage import write_atomically

    write_atomically(path, json.dumps(chrome_trace(log, names)))
    print(path if log.complete else f"{path} (the first {TRACED:,} events)")

"""``tuner simulate``: run a cluster in virtual time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.mixed import is_mixed, simulate_mixed_file
from tuner.cli.scenario import File, Out, Seconds, Seed, load_scenario, outcome_table, save

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
    """Simulate a cluster that serves models under a scheduling policy, and tell how it served them.

    A file with `instances` is a mixed cluster, which serves queries of many
    sizes: docs/mixed-instances.md.
    """
    from tuner.cli.console import make_console, make_progress
    from tuner.cluster import EventLog
    from tuner.cluster import simulate as run
    from tuner.errors import InvalidInput

    if is_mixed(file):
        if seconds is not None:
            raise InvalidInput("--seconds", "a mixed cluster is measured over its queries", "write `queries`")
        _simulate_mixed(file, out, trace, seed)
        return
    scenario = load_scenario(file, seed, seconds, out, trace)
    console = make_console()
    log = EventLog(TRACED) if trace is not None else None
    with make_progress(console) as progress:
        task = progress.add_task("simulating", total=100)
        outcome = run(
            scenario,
            log=log,
            progress=lambda share: progress.update(task, completed=int(100 * share)),
        )
    console.print(outcome_table(scenario, outcome))
    if trace is not None and log is not None:
        _save_trace(trace, [session.name for session in scenario.each_session], log)
    save(out, scenario, outcome.seconds, outcome.to_json())


def _simulate_mixed(file: Path, out: Path | None, trace: Path | None, seed: int | None) -> None:
    from tuner.cluster import EventLog

    log = EventLog(TRACED) if trace is not None else None

    def save_trace(names: list[str]) -> None:
        if trace is not None and log is not None:
            _save_trace(trace, names, log)

    simulate_mixed_file(file, out, seed, log, save_trace)


def _save_trace(path: Path, names: list[str], log: EventLog) -> None:
    from tuner.cluster import chrome_trace
    from tuner.storage import write_atomically

    write_atomically(path, json.dumps(chrome_trace(log, names)))
    print(path if log.complete else f"{path} (the first {TRACED:,} events)")

"""What ``tuner simulate`` and ``tuner goodput`` do with a mixed cluster: queries on mixed instances."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuner.cluster.mixed import MixedCluster, MixedOutcome
    from tuner.scheduling.log import EventLog

__all__ = ["goodput_mixed", "is_mixed", "simulate_mixed_file"]

OWN_FIELDS = frozenset({"instances", "catalogue", "budget", "queries"})
"""Fields that only the file of a mixed cluster has."""


def is_mixed(path: Path) -> bool:
    """Whether a scenario's file describes a mixed cluster: by its fields, or its policy.

    Raises:
        TunerError: It cannot be read.
    """
    from tuner.scheduling.catalogue import QUERY_POLICIES
    from tuner.yaml_file import read_yaml

    value = read_yaml(path)
    return isinstance(value, dict) and (
        not OWN_FIELDS.isdisjoint(value) or value.get("policy") in QUERY_POLICIES
    )


def simulate_mixed_file(
    file: Path,
    out: Path | None,
    seed: int | None,
    log: EventLog | None,
    save_trace: Callable[[list[str]], None],
) -> None:
    """Simulate all queries of a file once, print how they were served, and store it.

    Args:
        file: The scenario.
        out: Where to store the result; None: nowhere.
        seed: Instead of the file's, if given.
        log: Records what happens.
        save_trace: Called afterwards with the names of the sessions.
    """
    from tuner.cli.console import make_console, make_progress
    from tuner.cluster.mixed import DrivenCluster, simulate_mixed

    cluster = _load(file, DrivenCluster, out, seed)
    console = make_console()
    for note in cluster.notes:
        console.print(f"[yellow]note:[/yellow] {note}")
    with make_progress(console) as progress:
        task = progress.add_task("simulating", total=100)
        cluster = _with_threshold(cluster, lambda text: progress.update(task, description=text))
        outcome = simulate_mixed(
            cluster, log=log, progress=lambda share: progress.update(task, completed=int(100 * share))
        )
    console.print(_table(outcome))
    save_trace([session.name for session in cluster.sessions])
    _save(out, cluster, outcome.to_json())


def goodput_mixed(file: Path, out: Path | None, seed: int | None) -> None:
    """Search the allowable throughput of a file, print and store it; arguments as above."""
    from tuner.cli.console import make_console, make_progress
    from tuner.cluster.mixed import MixedCluster, RateTrial, allowable_throughput

    cluster = _load(file, MixedCluster, out, seed)
    console = make_console()
    for note in cluster.notes:
        console.print(f"[yellow]note:[/yellow] {note}")
    with make_progress(console) as progress:
        task = progress.add_task("searching", total=None)

        def show(trial: RateTrial) -> None:
            text = f"{trial.rate:,.1f} queries/s: {trial.excess:.2f} times the allowed share is late"
            progress.update(task, advance=1, description=text)

        cluster = _with_threshold(cluster, lambda text: progress.update(task, description=text))
        found = allowable_throughput(cluster, progress=show)
    console.print(_table(found.outcome))
    if found.rate:
        console.print(f"[bold]{_rate(found.rate)} queries/s[/bold] keep QoS in every session")
    else:
        console.print("[bold]no rate[/bold] keeps QoS in every session; the table shows the lowest tried")
    _save(out, cluster, found.to_json())


def _load(file: Path, kind: type[Any], out: Path | None, seed: int | None) -> MixedCluster:
    from tuner.storage import make_folder
    from tuner.yaml_file import load_yaml

    cluster: MixedCluster = load_yaml(file, kind)
    if out is not None:
        make_folder(out.absolute().parent, str(out))
    return cluster if seed is None else cluster.changed(seed=seed)


def _with_threshold(cluster: MixedCluster, report: Callable[[str], None]) -> MixedCluster:
    """Return the cluster with a threshold found by hill climbing, if its policy needs one and has none."""
    from tuner.cluster.mixed import climb_threshold

    if cluster.policy != "drs" or "threshold" in cluster.options:
        return cluster
    climb = climb_threshold(
        cluster, progress=lambda items, rate: report(f"threshold {items}: {_rate(rate)} queries/s")
    )
    return cluster.changed(options={**cluster.options, "threshold": climb.threshold})


def _save(out: Path | None, cluster: MixedCluster, content: dict[str, Any]) -> None:
    from tuner.storage import write_atomically

    if out is None:
        return
    head = {"policy": cluster.policy, "options": cluster.options, "seed": cluster.seed}
    write_atomically(out, json.dumps({**head, **content}, indent=1, allow_nan=False) + "\n")
    print(out)


def _table(outcome: MixedOutcome) -> object:
    """Return a table with a row for each session."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    cluster = outcome.cluster
    pool = ", ".join(f"{count} x {name}" for name, count in cluster.pool.items())
    options = ", ".join(f"{name} {value}" for name, value in cluster.options.items())
    title = f"{cluster.policy}{f' ({options})' if options else ''} on {pool} for {cluster.cost:.4g} $/h"
    table = Table(title=title, title_justify="left", header_style="bold", box=SIMPLE_HEAD)
    table.add_column("session", no_wrap=True)
    for name in ("QoS ms", "queries/s", "within QoS %", "p50 ms", "p95 ms", "p99 ms"):
        table.add_column(name, justify="right")
    for name, share in outcome.busy().items():
        table.add_column(f"% by {name}", justify="right", footer=f"{share:.0%} busy")
    table.show_footer = True
    for session, one in zip(cluster.sessions, outcome.outcome.sessions, strict=True):
        served = outcome.served(one)
        total = max(sum(served.values()), 1)
        table.add_row(
            session.name,
            f"{session.qos_ms:g}",
            _rate(one.rate),
            f"{100 * (1 - one.bad_rate):.2f}",
            *(_number(one.quantile(share) * 1e3) for share in (0.5, 0.95, 0.99)),
            *(f"{100 * count / total:.1f}" for count in served.values()),
        )
    return table


def _rate(rate: float) -> str:
    return f"{rate:,.1f}" if rate < 1000 else f"{rate:,.0f}"


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:,.1f}"

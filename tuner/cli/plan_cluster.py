"""``tuner plan cluster``: pack sessions onto accelerators (Nexus)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.output import JsonFile, check_file, check_plot, store_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tuner.planning.packing.plan import ClusterPlan

__all__ = ["EXAMPLES", "plan_cluster"]

EXAMPLES = """Example: [bold]tuner plan cluster cluster-plan.yaml --json plan.json --plot plan.png[/bold];
docs/examples/cluster-plan.yaml is a file to begin with."""

ROWS = 60
"""Backends in the table, and in the plot."""


def plan_cluster(
    file: Annotated[Path, typer.Argument(metavar="FILE.yaml", help="See docs/plan-cluster.md.")],
    out: JsonFile = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="PLOT.png", help="Also draw the duty cycles.")
    ] = None,
) -> None:
    """Pack sessions onto the fewest accelerators that serve them in time.

    Squishy bin packing (Nexus, section 6.1): every backend goes through its
    sessions in a duty cycle, a batch of each. With the plan of the epoch
    before (`previous`), few models move.
    """
    from tuner.cli.console import make_console
    from tuner.errors import InvalidInput
    from tuner.files.yaml_file import load_yaml
    from tuner.planning.packing.cluster import plan_file
    from tuner.planning.packing.form import ClusterFile
    from tuner.report import style

    asked = load_yaml(file, ClusterFile)
    check_file(out, "--json")
    check_plot(plot)
    console = make_console()
    with console.status("planning"):
        plan = plan_file(asked)
    console.print(_table(plan))
    for sentence in _sentences(plan):
        console.print(sentence)
    store_json(out, plan.to_json())
    if plot is not None:
        style.write(_drawing(plan), plot)
        print(plot)
    never = [one for one in plan.unserved if one.never]
    if never:
        listed = "; ".join(f"session {one.name}: {one.why}" for one in never)
        others = " (the plan above serves the others)" if plan.backends else ""
        raise InvalidInput(str(file), f"{listed}{others}")


def _table(plan: ClusterPlan) -> object:
    from tuner.cli.console import count_text, make_table, plain

    used = count_text(len(plan.backends), "accelerator")
    title = f"{used}, at least {plan.lower_bound} by their best throughput"
    table = make_table(title)
    table.add_column("backend", no_wrap=True)
    for name in ("cycle, ms", "busy", "MiB"):
        table.add_column(name, justify="right")
    table.add_column("sessions: requests/s in batches of")
    for backend in plan.backends[:ROWS]:
        sessions = ", ".join(f"{one.name} {one.rate:.4g} in {one.batch}" for one in backend.sessions)
        table.add_row(
            plain(backend.name),
            f"{backend.cycle * 1e3:.4g}",
            f"{backend.occupancy:.0%}",
            f"{backend.memory / 2**20:,.0f}",
            plain(sessions),
        )
    if len(plan.backends) > ROWS:
        table.caption = f"the first {ROWS} of {len(plan.backends)} backends; --json has all"
    return table


def _sentences(plan: ClusterPlan) -> list[str]:
    from tuner.cli.console import count_text, plain

    lines = [f"{count_text(plan.loaded, 'model')} to load"]
    lines += [
        plain(f"{name}: {', '.join(sessions)} share batches") for name, sessions in plan.members.items()
    ]
    if plan.exact and plan.greedy is not None:
        gap = plan.greedy / plan.exact - 1
        lines.append(f"greedy packing {plan.greedy}, integer programming {plan.exact}: gap {gap:.1%}")
    lines += [
        f"[red]not served:[/red] {plain(f'{one.rate:.4g} requests/s of {one.name}: {one.why}')}"
        for one in plan.unserved
    ]
    return lines


def _drawing(plan: ClusterPlan) -> Figure:
    """Draw the batches of one duty cycle of each backend."""
    from tuner.report import style

    shown = plan.backends[:ROWS]
    size = (8.0, 1.4 + 0.28 * max(len(shown), 3))
    figure, axes = style.figure(f"Duty cycles of {len(plan.backends)} backends", size=size)
    axis, looks = axes[0, 0], dict[str, style.Look]()
    for row, backend in enumerate(shown):
        axis.barh(row, backend.cycle * 1e3, color="none", edgecolor=style.MUTED, height=0.7)
        begin = 0.0
        for one in backend.sessions:
            look = looks.setdefault(one.name, style.look("", len(looks)))
            axis.barh(row, one.execution * 1e3, left=begin * 1e3, color=look.color, height=0.7)
            middle = (begin + one.execution / 2) * 1e3
            text = style.plain(f"{one.name} {one.batch}")
            axis.text(middle, row, text, ha="center", va="center", fontsize=7)
            begin += one.execution
    axis.set(xlabel="ms of the duty cycle; each batch with its session and size")
    axis.set_yticks(range(len(shown)), [style.plain(backend.name) for backend in shown])
    axis.invert_yaxis()
    return figure

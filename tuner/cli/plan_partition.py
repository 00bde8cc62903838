"""``tuner plan partition``: divide models among sub-clusters (Symphony)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuner.cli.output import JsonFile, check_file, check_plot, store_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EXAMPLES", "plan_partition"]

EXAMPLES = """Example: [bold]tuner plan partition partition.yaml --json out.json --plot out.png[/bold];
docs/examples/partition.yaml is a file to begin with."""

ROWS = 60
"""Sub-clusters in the table."""


def plan_partition(
    file: Annotated[Path, typer.Argument(metavar="FILE.yaml", help="See docs/plan-partition.md.")],
    out: JsonFile = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="PLOT.png", help="Also draw the partition.")
    ] = None,
) -> None:
    """Divide models among sub-clusters of like rate and memory.

    Every accelerator of a sub-cluster loads all of its models (Symphony,
    section 4.7 and appendix A). What is found within the time limit is
    compared with the best of random partitions.
    """
    from tuner.cli.console import make_console
    from tuner.files.yaml_file import load_yaml
    from tuner.planning.partition.form import PartitionFile
    from tuner.planning.partition.problem import imbalance
    from tuner.planning.partition.solver import better_partition, find_partition, random_partition
    from tuner.report import style

    asked = load_yaml(file, PartitionFile)
    check_file(out, "--json")
    check_plot(plot)
    problem = asked.problem()
    found = find_partition(problem, seconds=asked.time_limit_s)
    drawn = random_partition(problem, seconds=min(1.0, asked.time_limit_s))
    if drawn is not None:
        found = better_partition(problem, found, drawn.assignment)
    content = asked.to_json(found)
    console = make_console()
    console.print(_table(content, asked.partitions))
    if drawn is not None:
        sums = problem.sums(drawn.assignment)
        console.print(f"the best of random partitions: imbalance {_both(*map(imbalance, sums))}")
    store_json(out, content)
    if plot is not None:
        style.write(_drawing(content), plot)
        print(plot)


def _both(rate: float, memory: float) -> str:
    return f"{rate:.2%} of the rate, {memory:.2%} of the memory"


def _table(content: dict[str, Any], parts: int) -> object:
    from tuner.cli.console import make_table

    how = "the best there is" if content["optimal"] else f"found in {content['seconds']:.1f} s"
    imbalance = _both(content["imbalance"], content["memory_imbalance"])
    title = f"{len(content['assignment'])} models in {parts} sub-clusters, imbalance {imbalance}; {how}"
    table = make_table(title, numbers=("sub-cluster", "models", "requests/s", "MiB"))
    members = list(content["assignment"].values())
    for part in range(min(parts, ROWS)):
        rate, memory = content["rate"][part], content["memory_mib"][part]
        table.add_row(str(part), str(members.count(part)), f"{rate:,.1f}", f"{memory:,.0f}")
    if parts > ROWS:
        table.caption = f"the first {ROWS} of {parts}; --json has all"
    return table


def _drawing(content: dict[str, Any]) -> Figure:
    from tuner.report import style

    figure, axes = style.figure("Rate and memory of the sub-clusters", columns=2)
    for axis, name, label in zip(
        axes.flat, ("rate", "memory_mib"), ("requests/s", "memory, MiB"), strict=True
    ):
        axis.bar(range(len(content[name])), content[name], color=style.look("").color)
        axis.set(xlabel="sub-cluster", ylabel=label)
    return figure

"""``tuner plan instances``: choose the pool of mixed instances to rent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tuner.planning.pools import PoolPlan

__all__ = ["EXAMPLES", "plan_instances"]

EXAMPLES = """Example: [bold]tuner plan instances kairos.yaml --json plan.json[/bold];
docs/examples/kairos.yaml is a file to begin with."""


def plan_instances(
    file: Annotated[Path, typer.Argument(metavar="FILE.yaml", help="See docs/plan-instances.md.")],
    out: Annotated[
        Path | None, typer.Option("--json", metavar="OUT", help="Also store the plan here.")
    ] = None,
    profiles: Annotated[
        Path | None,
        typer.Option(
            "--profiles", metavar="LEARNED.json", help="Profiles of observed servers, in place of the file's."
        ),
    ] = None,
) -> None:
    """Choose the instances of mixed types that serve most requests within the SLO and the budget.

    Nothing is started: the choice is made from upper bounds of the throughput
    (Kairos, section 5.2). If the file says which `instances` run now, the
    gain and the cost of a switch are shown, too.
    """
    from tuner.cli.console import make_console, plain, print_notes
    from tuner.cluster.scenario import Scenario
    from tuner.planning.pools import LearnedFile, plan_scenario, running_pool
    from tuner.storage import make_folder_of, write_atomically
    from tuner.yaml_file import load_yaml

    scenario = load_yaml(file, Scenario, use="plan")
    if out is not None:
        make_folder_of(out, "--json")
    learned = load_yaml(profiles, LearnedFile) if profiles is not None else None  # JSON is YAML
    plan = plan_scenario(scenario, learned)
    running = running_pool(scenario, plan)
    console = make_console()
    print_notes(console, plan.offers.notes)
    console.print(_table(plan))
    counts = ", ".join(f"{count} x {name}" for name, count in plan.chosen.counts.items() if count)
    rate = f"{_rate(plan.chosen.bound)} requests/s"
    console.print(f"[bold]{plain(counts)}[/bold] for {plan.chosen.cost:.4g} $/h, bound {rate}")
    for sentence in (*plan.why, *([running.text] if running else [])):
        console.print(f"  {plain(sentence)}")
    if out is not None:
        content = plan.to_json()
        if running is not None:
            content["running"] = running.to_json()
        write_atomically(out, json.dumps(content, indent=1, allow_nan=False) + "\n")
        print(out)


def _table(plan: PoolPlan) -> object:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from tuner.cli.console import plain

    title = f"{plain(plan.session.name)}: the {len(plan.top)} highest bounds of {plan.pools:,} pools"
    table = Table(title=title, title_justify="left", header_style="bold", box=SIMPLE_HEAD)
    for name in ("", *map(plain, plan.offers.names), "bound, requests/s", "ceiling", "$/h", "distance"):
        table.add_column(name, justify="right")
    table.add_column("bottleneck")
    for rank, pool in enumerate(plan.top, 1):
        chosen = pool == plan.chosen
        table.add_row(
            f"→ {rank}" if chosen else str(rank),
            *(str(count) for count in pool.counts.values()),
            _rate(pool.bound),
            _rate(pool.ceiling),
            f"{pool.cost:.4f}",
            "" if pool.distance is None else str(pool.distance),
            plain(pool.bottleneck),
            style="bold" if chosen else None,
        )
    return table


def _rate(rate: float) -> str:
    return f"{rate:,.1f}" if rate < 1000 else f"{rate:,.0f}"

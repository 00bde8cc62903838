"""``tuner plan instances``: choose the pool of mixed instances to rent."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.output import JsonFile, check_file, store_json

if TYPE_CHECKING:
    from tuner.planning.pools import PoolPlan

__all__ = ["EXAMPLES", "Rule", "plan_instances"]

EXAMPLES = """Example: [bold]tuner plan instances kairos.yaml --json plan.json[/bold];
docs/examples/kairos.yaml is a file to begin with."""


class Rule(StrEnum):
    """How the pool is chosen."""

    SIMULATED = "simulated"
    PAPER = "paper"


def plan_instances(
    file: Annotated[Path, typer.Argument(metavar="FILE.yaml", help="See docs/plan-instances.md.")],
    out: JsonFile = None,
    profiles: Annotated[
        Path | None,
        typer.Option(
            "--profiles", metavar="LEARNED.json", help="Profiles of observed servers, in place of the file's."
        ),
    ] = None,
    rule: Annotated[
        Rule,
        typer.Option("--rule", help="simulated: try the best candidates in virtual time; paper: do not."),
    ] = Rule.SIMULATED,
) -> None:
    """Choose the instances of mixed types that serve most requests within the SLO and the budget.

    Nothing is started: the pools with the highest ceilings are simulated.
    `--rule paper` chooses from upper bounds alone (Kairos, section 5.2). If
    the file says which `instances` run now, the gain and the cost of a switch
    are shown, too.
    """
    from tuner.cli.console import make_console, plain, print_notes, rate_text
    from tuner.cluster.pool_trial import PoolTrial
    from tuner.cluster.scenario import Scenario
    from tuner.files.yaml_file import load_yaml
    from tuner.planning.pools import LearnedFile, make_order, plan_order, running_pool
    from tuner.planning.trials import plan_by_trials

    scenario = load_yaml(file, Scenario, use="plan")
    check_file(out, "--json")
    learned = load_yaml(profiles, LearnedFile) if profiles is not None else None  # JSON is YAML
    order = make_order(scenario, learned)
    trial = PoolTrial(scenario, order.types)
    if rule is Rule.PAPER:
        plan = plan_order(order)
    else:
        notes = (*order.offers.notes, *trial.notes)
        plan = plan_by_trials(order._replace(offers=order.offers._replace(notes=notes)), trial)
    running = running_pool(scenario, plan, None if rule is Rule.PAPER else trial.goodput)
    console = make_console()
    print_notes(console, plan.offers.notes)
    console.print(_table(plan))
    counts = ", ".join(f"{count} x {name}" for name, count in plan.chosen.counts.items() if count)
    served = plan.chosen.simulated
    rate = f"bound {rate_text(plan.chosen.bound)}" if served is None else f"serves {rate_text(served)}"
    console.print(f"[bold]{plain(counts)}[/bold] for {plan.chosen.cost:.4g} $/h, {rate} requests/s")
    for sentence in (*plan.why, *([running.text] if running else [])):
        console.print(f"  {plain(sentence)}")
    store_json(out, plan.to_json() | ({"running": running.to_json()} if running is not None else {}))


def _table(plan: PoolPlan) -> object:
    from tuner.cli.console import make_table, plain, rate_text

    what = "best" if plan.tried else "highest bounds"
    title = f"{plain(plan.session.name)}: the {len(plan.top)} {what} of {plan.pools:,} pools"
    rates = ("simulated, requests/s", "bound") if plan.tried else ("bound, requests/s",)
    last = () if plan.tried else ("distance",)
    names = ("", *map(plain, plan.offers.names), *rates, "ceiling", "$/h", *last)
    table = make_table(title, numbers=names)
    table.add_column("bottleneck")
    for rank, pool in enumerate(plan.top, 1):
        chosen = pool == plan.chosen
        simulated = "" if pool.simulated is None else rate_text(pool.simulated)
        table.add_row(
            f"→ {rank}" if chosen else str(rank),
            *(str(count) for count in pool.counts.values()),
            *((simulated,) if plan.tried else ()),
            rate_text(pool.bound),
            rate_text(pool.ceiling),
            f"{pool.cost:.4f}",
            *(() if plan.tried else ("" if pool.distance is None else str(pool.distance),)),
            plain(pool.bottleneck),
            style="bold" if chosen else None,
        )
    return table

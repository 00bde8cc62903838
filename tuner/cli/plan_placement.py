"""``tuner plan placement``: find by simulation the plan with which given accelerators serve the most."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.output import JsonFile, check_file, store_json

if TYPE_CHECKING:
    from tuner.cluster import Scenario
    from tuner.cluster.placement_trial import ChosenPlacement

__all__ = ["EXAMPLES", "plan_placement"]

EXAMPLES = """Example: [bold]tuner plan placement cluster.yaml --json placement.json[/bold];
docs/examples/cluster.yaml is a file to begin with."""

ROWS = 60
"""Accelerators in the table."""


def plan_placement(
    file: Annotated[Path, typer.Argument(metavar="FILE.yaml", help="A scenario; see docs/simulate.md.")],
    out: JsonFile = None,
) -> None:
    """Find the sessions of each accelerator with which all accelerators of a scenario serve the most.

    Plans of squishy bin packing with more or less room for bursts, and plans
    in which parts of sessions were moved, are simulated under the policy
    nexus, whatever the file's; the best is improved move by move. The result
    is its option "placement".
    """
    from tuner.cli.console import make_console, print_notes
    from tuner.cluster import Scenario
    from tuner.cluster.placement_trial import choose_placement
    from tuner.files.yaml_file import load_yaml

    scenario = load_yaml(file, Scenario)
    check_file(out, "--json")
    console = make_console()
    print_notes(console, _replaced(scenario))
    with console.status("making the first plan") as status:
        chosen = choose_placement(scenario, note=lambda what: status.update(f"simulating {what}"))
    console.print(_table(scenario, chosen))
    console.print(
        f"[bold]{chosen.rate:,.4g} requests/s[/bold] by the best of {chosen.tried} plans on other arrivals; "
        f"{chosen.packed:,.4g} by squishy bin packing alone"
    )
    store_json(out, chosen.to_json())


def _replaced(scenario: Scenario) -> list[str]:
    """Return what of the file is not simulated."""
    from tuner.cluster.placement_trial import POLICY

    notes = []
    if scenario.planner is not None:
        notes.append(f"plans are simulated without the file's planner, {scenario.planner}")
    if scenario.policy not in (None, POLICY):
        notes.append(f"plans are simulated under {POLICY}, not under the file's policy, {scenario.policy}")
    return notes


def _table(scenario: Scenario, chosen: ChosenPlacement) -> object:
    from tuner.cli.console import make_table, plain

    sessions = scenario.cluster_spec().sessions
    title = f"{len(chosen.placement.backends)} accelerators"
    table = make_table(title, ["accelerator", "session"], ("batch", "share"))
    placed = dict.fromkeys(range(len(sessions)), 0.0)
    for row in chosen.placement.backends:
        for share in row:
            placed[share.session] += share.rate
    for number, row in enumerate(chosen.placement.backends[:ROWS]):
        for place, share in enumerate(row):
            part = share.rate / placed[share.session]
            name = plain(sessions[share.session].name)
            table.add_row("" if place else str(number), name, str(share.batch), f"{part:.0%}")
    if len(chosen.placement.backends) > ROWS:
        table.caption = f"the first {ROWS} of {len(chosen.placement.backends)} accelerators; --json has all"
    return table

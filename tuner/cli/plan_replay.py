"""``tuner plan replay``: allot, admit and place the jobs of a replay log, round by round (Nexus on Blox)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuner.cli.output import JsonFile, check_file, store_json

if TYPE_CHECKING:
    from tuner.planning.rounds.simulation import Round

__all__ = ["EXAMPLES", "plan_replay"]

EXAMPLES = """Example: [bold]tuner plan replay jobs.csv --models models.yaml --accelerators 16[/bold];
docs/examples/replay.csv and replay-models.yaml are files to begin with."""

ROWS = 40
"""Rounds in the table."""
SHOWN = 10
"""Jobs that the error names."""


def plan_replay(
    log: Annotated[Path, typer.Argument(metavar="LOG.csv", help="See docs/plan-replay.md.")],
    models: Annotated[Path, typer.Option("--models", metavar="MODELS.yaml", help="Profiles of the models.")],
    accelerators: Annotated[int, typer.Option("--accelerators", min=1, max=10_000, help="How many serve.")],
    round_s: Annotated[float, typer.Option("--round-s", min=0.001, help="Seconds of a round.")] = 60.0,
    rule: Annotated[str, typer.Option("--rule", help="nexus or fifo.")] = "nexus",
    placement: Annotated[str, typer.Option("--placement", help="locality or random.")] = "locality",
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the random placement.")] = 0,
    out: JsonFile = None,
) -> None:
    """Serve the jobs of a replay log round by round, and count what is dropped and what is loaded."""
    from tuner.cli.console import make_console
    from tuner.errors import InvalidInput, check_choice
    from tuner.files.yaml_file import load_yaml
    from tuner.planning.rounds.allocation import RULES
    from tuner.planning.rounds.form import ModelsFile
    from tuner.planning.rounds.placement import PLACEMENT_RULES
    from tuner.planning.rounds.replay import read_replay
    from tuner.planning.rounds.simulation import replay_rounds

    allotted_by = check_choice("--rule", rule, RULES)
    placed_by = check_choice("--placement", placement, PLACEMENT_RULES)
    known = load_yaml(models, ModelsFile).by_name()
    jobs = read_replay(log)
    for job in jobs:
        if job.model not in known:
            raise InvalidInput(str(log), f"job {job.name} is of {job.model}, which {models} does not have")
    check_file(out, "--json")
    rounds = list(
        replay_rounds(
            jobs,
            known,
            accelerators=accelerators,
            seconds=round_s,
            rule=allotted_by,
            placement=placed_by,
            seed=seed,
        )
    )
    content = _content(rounds)
    console = make_console()
    console.print(_table(content))
    store_json(out, content)
    if never := content["unserved"]:
        listed = ", ".join(never[:SHOWN]) + (f" and {len(never) - SHOWN} others" * (len(never) > SHOWN))
        others = "; the rounds serve the others" if len(never) < len(jobs) else ""
        raise InvalidInput(str(log), f"no accelerator serves in time: jobs {listed}{others}")


def _content(rounds: list[Round]) -> dict[str, Any]:
    hits, swaps = sum(one.placed.hits for one in rounds), sum(one.placed.swaps for one in rounds)
    offered = sum(one.admission.offered for one in rounds)
    return {
        "rounds": [
            {
                "begin_s": one.begin,
                "jobs": one.jobs,
                "accelerators": len(one.admission.nodes),
                "bad_rate": one.admission.bad_rate,
                "hits": one.placed.hits,
                "swaps": one.placed.swaps,
                "load_s": one.placed.seconds,
            }
            for one in rounds
        ],
        "bad_rate": max(1 - sum(one.admission.served for one in rounds) / offered, 0.0),
        "hit_rate": hits / (hits + swaps) if hits + swaps else 0.0,
        "swaps": swaps,
        "load_s": sum(one.placed.seconds for one in rounds),
        "unserved": [name for one in rounds for name in one.unserved],
    }


def _table(content: dict[str, Any]) -> object:
    from tuner.cli.console import make_table

    title = (
        f"{len(content['rounds'])} rounds: {content['bad_rate']:.2%} of the requests dropped, "
        f"{content['hit_rate']:.1%} of the models there already, {content['swaps']} loaded"
    )
    numbers = ("from s", "jobs", "accelerators", "dropped %", "hits", "swaps", "loading s")
    table = make_table(title, numbers=numbers)
    for one in content["rounds"][:ROWS]:
        table.add_row(
            f"{one['begin_s']:g}",
            str(one["jobs"]),
            str(one["accelerators"]),
            f"{100 * one['bad_rate']:.2f}",
            str(one["hits"]),
            str(one["swaps"]),
            f"{one['load_s']:.4g}",
        )
    if len(content["rounds"]) > ROWS:
        table.caption = f"the first {ROWS} of {len(content['rounds'])} rounds; --json has all"
    return table

"""``tuner plan``: decide what to rent and where to put it before anything runs; a module for each command."""

from __future__ import annotations

import typer

from tuner.cli import (
    plan_cluster,
    plan_instances,
    plan_partition,
    plan_placement,
    plan_prefix,
    plan_query,
    plan_replay,
)
from tuner.cli.usage import UserCommand

__all__ = ["app"]

app = typer.Typer(
    help="Decide what to rent, and where to put it, before anything runs.",
    epilog=plan_instances.EXAMPLES,
    no_args_is_help=True,
)


@app.callback()
def _group() -> None:
    """Decide what to rent, and where to put it, before anything runs."""


app.command("instances", cls=UserCommand, epilog=plan_instances.EXAMPLES)(plan_instances.plan_instances)
app.command("cluster", cls=UserCommand, epilog=plan_cluster.EXAMPLES)(plan_cluster.plan_cluster)
app.command("partition", cls=UserCommand, epilog=plan_partition.EXAMPLES)(plan_partition.plan_partition)
app.command("placement", cls=UserCommand, epilog=plan_placement.EXAMPLES)(plan_placement.plan_placement)
app.command("prefix", cls=UserCommand, epilog=plan_prefix.EXAMPLES)(plan_prefix.plan_prefix)
app.command("query", cls=UserCommand, epilog=plan_query.EXAMPLES)(plan_query.plan_query)
app.command("replay", cls=UserCommand, epilog=plan_replay.EXAMPLES)(plan_replay.plan_replay)

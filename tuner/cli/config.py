"""``tuner config``: an example of the daemon's file, and a check of one."""

from __future__ import annotations

import math
import os
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.usage import UserCommand

if TYPE_CHECKING:
    from tuner.control.daemon.config import Bounds, DaemonConfig, HttpSection, TargetConfig

__all__ = ["EXAMPLES", "app"]

EXAMPLES = (
    """Example: [bold]tuner config example > servetune.yaml; tuner config check servetune.yaml[/bold]"""
)

app = typer.Typer(help="Write and check the file of `tuner daemon`.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Write and check the file of `tuner daemon`."""


@app.command("example", cls=UserCommand, epilog=EXAMPLES)
def example() -> None:
    """Print a file to begin with."""
    print(files("tuner.control.daemon").joinpath("example.yaml").read_text(encoding="utf-8"), end="")


@app.command("check", cls=UserCommand, epilog=EXAMPLES)
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE.yaml", help="See docs/daemon.md.")],
    connect: Annotated[
        bool,
        typer.Option(
            "--connect", help="Also check that each server has and can do what is asked. Changes nothing."
        ),
    ] = False,
) -> None:
    """Check a file and print what it means; of a mistake the line and the field."""
    from tuner.cli.console import make_console, make_table, plain
    from tuner.control.daemon.config import DaemonConfig
    from tuner.duration import format_duration
    from tuner.files.yaml_file import load_yaml

    config = load_yaml(file, DaemonConfig)
    _check_token(config.http)
    console = make_console()
    table = make_table(
        None, ["target", "mode", "window", "objective", "knobs (times in s)", "changes allowed"]
    )
    for target in config.targets:
        knobs = ", ".join(f"{name} {_values(grid)}" for name, grid in target.knobs.items())
        table.add_row(
            f"{target.name}\n[dim]{plain(target.url)}[/dim]",
            target.mode,
            format_duration(target.window),
            f"{target.objective}, {target.slo}",
            plain(knobs) or "the server's own",
            _when(target),
        )
    console.print(table)
    print(f"state: {config.state}")
    if connect:
        _connect(config)
    print(f"{file} is right")


def _check_token(http: HttpSection | None) -> None:
    """Check the token for orders, if it is here: a file may be checked for another machine."""
    from tuner.web.token import read_token

    if http is not None and http.token_file is not None and os.access(http.token_file, os.R_OK):
        read_token(http.token_file, None, "http.token_file")


def _connect(config: DaemonConfig) -> None:
    """Compare the file with what each server has and can do."""
    from contextlib import closing

    from tuner.adapters import connect
    from tuner.control.daemon.policy_check import check_space
    from tuner.control.daemon.target import attached_quietly
    from tuner.control.daemon.turned_models import TurnedModels
    from tuner.errors import TunerError
    from tuner.printable import one_line

    problems, turned = [], TurnedModels()
    for target in config.targets:
        try:
            with closing(connect(target.url)) as backend:
                grids = target.grids(backend.space)
            with attached_quietly(target, grids) as attachment:
                if target.policy is not None and target.mode != "observe":
                    check_space(target.policy, attachment.space)
                turned.take(target, attachment)
                described = attachment.description
                writable = "can be changed" if described.writable else "cannot be changed"
                server = one_line(f"{described.server} {described.version}")
                print(f"{target.name}: {server}, {attachment.space.size} configurations, {writable}")
        except TunerError as error:
            problems.append(f"{target.name}: {error}")
    if problems:
        count = f"{len(problems)} of {len(config.targets)} targets cannot be used as they are:"
        raise TunerError("\n  ".join([count, *problems]))


def _values(grid: Bounds | tuple[float, ...]) -> str:
    if isinstance(grid, tuple):
        return "/".join(f"{value:g}" for value in grid)
    least = "" if math.isinf(grid.least) else f"{grid.least:g}"
    most = "" if math.isinf(grid.most) else f"{grid.most:g}"
    return f"{least}..{most}"


def _when(target: TargetConfig) -> str:
    from tuner.control.daemon.config import DAYS

    if target.mode != "apply":
        return "never"
    parts = [
        f"{', '.join(DAYS[day] for day in part.days) if len(part.days) < 7 else 'daily'} "
        f"{part.begin:%H:%M}-{part.end:%H:%M}"
        for part in target.maintenance
    ]
    return "\n".join([*parts, target.time_zone]) if parts else "always"

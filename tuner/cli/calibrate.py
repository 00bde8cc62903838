"""``tuner calibrate``: measure a server model for the simulator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import ForeignLimit, Knobs, Target
from tuner.cli.signature import Fields, fields_as_options
from tuner.setting import Load, parse_grids, parse_window

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from tuner.measurement import Measurement

__all__ = ["EXAMPLES", "calibrate"]

EXAMPLES = """Example: [bold]tuner calibrate triton://127.0.0.1:8001/resnet50 --rate 100
--rate 250 --out resnet50.yaml[/bold]"""
UNITS = (
    "Times are in s, work of processors is in core-seconds, a rate is in requests/s, noise and sizes are the "
    "sigmas of lognormals, the rest are numbers and shares of 1. What each is: docs/train.md"
)
"""Beneath the table of constants."""


@fields_as_options
def calibrate(
    target: Target,
    rate: Annotated[
        list[float] | None,
        typer.Option(
            "--rate",
            min=0.1,
            max=100_000,
            help="Send this many requests/s (Poisson) and time them; again for a second load. "
            "Default: watch the server's own traffic.",
        ),
    ] = None,
    *,
    load: Annotated[Load, Fields("arrival", "shapes")],
    foreign_limit: ForeignLimit = None,
    knobs: Knobs = None,
    seconds: Annotated[str, typer.Option("--seconds", help="Length of each of the few windows.")] = "5s",
    out: Annotated[
        Path, typer.Option("--out", help="Where the server model goes: YAML or JSON, by its suffix.")
    ] = Path("server.json"),
) -> None:
    """Measure a server in a few configurations and write a model of it for the simulator.

    With `--rate` it sends requests of its own. Two rates show more than one; the higher should be near the
    server's highest load. The file is for `tuner train --server FILE` and `sim://MODEL?server=FILE`. At the
    end the server runs what it ran before.
    """
    from dataclasses import asdict, replace

    from tuner.cli.console import make_console
    from tuner.envs.simulator.tfserving_cpu import TFServingCPU
    from tuner.files.storage import make_folder_of
    from tuner.laboratory.calibration import measure_model
    from tuner.profiler.attachment import attach

    window = parse_window(seconds, "--seconds")
    rates = sorted(rate or ())
    first = replace(load, rate=rates[0] if rates else None)
    make_folder_of(out, "--out")
    with attach(
        target,
        grids=parse_grids(knobs or []),
        load=first,
        foreign_limit=foreign_limit,
    ) as attachment:
        model, windows = measure_model(attachment, window, rates=rates)
        model.save(out)
        console = make_console()
        console.print(_table(asdict(model)))
        if not isinstance(model, TFServingCPU) and (several := _several_rows(windows)):
            console.print(f"[yellow]{several}[/yellow]")
        print(out)


def _several_rows(windows: Sequence[Measurement]) -> str:
    """Say what requests of several rows mean for a policy that is trained on a model; empty without such."""
    from tuner.measurement import median_known

    rows = median_known(m.rows for m in windows)
    if not rows > 1.0:
        return ""
    return (
        f"each row is a request of the model: 100 requests/s of the server, with {rows:.3g} rows each, are "
        f"--rate {100 * rows:.0f} of `tuner train`. The server counts requests, so a policy from there is "
        "for other loads on it: tune it without one"
    )


def _table(model: dict[str, object]) -> Table:
    """Return the constants of a server model."""
    from rich.table import Table

    from tuner.cli.console import plain

    title = f"what the simulator knows of {plain(str(model.pop('name')))}"
    table = Table(title=title, title_justify="left", caption=UNITS, caption_justify="left")
    table.add_column("constant")
    table.add_column("value", overflow="fold")
    for name, value in model.items():
        table.add_row(name.replace("_", " "), _text(value))
    return table


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_text(one)}" for key, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    return f"{value:.4g}" if isinstance(value, float) else "-" if value is None else str(value)

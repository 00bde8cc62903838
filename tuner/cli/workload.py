"""``tuner workload``: list the workloads, and show their rates over an episode."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import MOST_WINDOWS, Seed
from tuner.cli.output import JsonFile, check_file, check_plot, store_json
from tuner.cli.usage import UserCommand

if TYPE_CHECKING:
    import numpy as np

__all__ = ["EXAMPLES", "app"]

EXAMPLES = (
    """Example: [bold]tuner workload show dynamic wikipedia:spikes=9 --rate 14 --plot load.png[/bold]"""
)
BLOCKS = "▁▂▃▄▅▆▇█"
COLUMNS = 3
"""Most panels in a row."""

app = typer.Typer(help="Look at the loads that agents are trained and compared under.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Look at the loads that agents are trained and compared under."""


@app.command("list", cls=UserCommand, epilog=EXAMPLES)
def list_workloads() -> None:
    """List the workloads and their parameters."""
    from rich.markup import escape

    from tuner.cli.console import make_console
    from tuner.workload import WORKLOADS

    console = make_console()
    for name, kind in WORKLOADS.items():
        file = ":FILE.csv" if kind.takes_file else ""
        console.print(f"[bold]{name}{file}[/bold]  {escape(kind.about)}", soft_wrap=True)
        for field in kind.parameters():
            setting = f"{field.name}={field.default:g}"
            console.print(f"    {setting:18} {escape(field.metadata['about'])}", soft_wrap=True)


@app.command("show", cls=UserCommand, epilog=EXAMPLES)
def show(
    specs: Annotated[
        list[str],
        typer.Argument(
            metavar="SPEC...", help="Such as dynamic, step:low=0.5,high=1.5,at=0.3 or trace:FILE.csv."
        ),
    ],
    rate: Annotated[float, typer.Option("--rate", help="The nominal rate, requests/s.")] = 100.0,
    windows: Annotated[
        int, typer.Option("--windows", min=1, max=MOST_WINDOWS, help="Length of the episode.")
    ] = 300,
    seed: Seed = 0,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw it: a .png, .svg or .pdf.")
    ] = None,
    out: JsonFile = None,
) -> None:
    """Show the offered rate of each window of an episode, of one workload or of several."""
    import numpy as np

    from tuner.cli.console import make_console
    from tuner.workload import workload

    check_plot(plot)
    check_file(out, "--json")
    loads = [workload(spec, rate, "SPEC") for spec in specs]
    rates = [load.rates(windows, np.random.default_rng(seed)) for load in loads]
    console = make_console()
    for load, values in zip(loads, rates, strict=True):
        console.print(f"[bold]{load}[/bold]", soft_wrap=True)
        console.print(f"  {_spark(values, 72)}", soft_wrap=True)
        console.print(
            f"  {values.min():.4g} to {values.max():.4g}, mean {values.mean():.4g} requests/s over {windows} "
            f"windows; gaps of shape {load.burstiness:.3g}",
            soft_wrap=True,
        )
    if plot is not None:
        _draw(dict(zip(specs, rates, strict=True)), rate, plot)
        print(plot)
    rows = [
        {"workload": str(load), "burstiness": load.burstiness, "rates": values.tolist()}
        for load, values in zip(loads, rates, strict=True)
    ]
    store_json(out, {"rate": rate, "windows": windows, "seed": seed, "workloads": rows})


def _spark(rates: np.ndarray, width: int) -> str:
    """Write rates as blocks, whose heights are in proportion to them."""
    import numpy as np

    parts = [part.max() for part in np.array_split(rates, min(width, rates.size))]
    heights = np.asarray(parts) / max(parts) * len(BLOCKS)
    return "".join(BLOCKS[min(int(height), len(BLOCKS) - 1)] for height in heights)


def _draw(loads: dict[str, np.ndarray], rate: float, path: Path) -> None:
    """Draw a panel for each spec and its rates."""
    from tuner.report import style

    columns = min(len(loads), COLUMNS)
    rows = -(-len(loads) // columns)
    title = f"Offered rate, nominal {rate:g} requests/s"
    figure, axes = style.figure(
        title, rows=rows, columns=columns, size=(0.8 + 3.4 * columns, 0.8 + 1.9 * rows), sharex=True
    )
    for panel, (spec, values) in zip(axes.flat, loads.items(), strict=False):
        panel.axhline(rate, color=style.MUTED, lw=0.8, ls=":")
        panel.plot(range(values.size), values, color=style.PALETTE[0], lw=1.1, drawstyle="steps-post")
        panel.set_title(style.plain(_short(spec)), loc="left", fontsize=9, color=style.INK)
        panel.set_ylim(0, max(1.05 * values.max(), 1.6 * rate))
    for panel in axes.flat[len(loads) :]:
        panel.set_visible(False)
    for panel in axes[:, 0]:
        panel.set_ylabel("requests/s")
    for panel in axes.flat[max(len(loads) - columns, 0) : len(loads)]:
        panel.set_xlabel("window")
        panel.xaxis.set_tick_params(labelbottom=True)
    style.write(figure, path)


def _short(text: str) -> str:
    """Shorten a spec to a panel's width: a file's folders go first, then its end."""
    name, colon, rest = text.partition(":")
    shown = f"{name}{colon}{rest.rsplit('/', 1)[-1]}"
    return shown if len(shown) <= 44 else f"{shown[:43]}…"

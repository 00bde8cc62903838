"""``tuner sweep``: measure every configuration of a grid under requests of our own."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import ForeignLimit, Seed, Target
from tuner.cli.signature import Fields, fields_as_options
from tuner.setting import Load, parse_grids, parse_window

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tuner.control.drive.sweep import SweepResult
    from tuner.knobs import Configuration, KnobSpace
    from tuner.profiler.attachment import Attachment

__all__ = ["EXAMPLES", "sweep", "to_measure", "without_effect"]

EXAMPLES = """Example: [bold]tuner sweep triton://127.0.0.1:8001/resnet50 --rate 150
--grid max_batch_size=1,4,16 --grid max_queue_delay=0,5ms --grid instances=1,2[/bold]"""

RATE = "Send this many requests/s (Poisson) and time them. This or --arrival is required."


@fields_as_options
def sweep(
    target: Target,
    load: Annotated[Load, Fields("rate", "arrival", "shapes", help={"rate": RATE})],
    foreign_limit: ForeignLimit = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid",
            metavar="NAME=V,V,..",
            help="Values of a knob. Repeat; a knob left out keeps its value. Without any, all are turned.",
        ),
    ] = None,
    seconds: Annotated[str, typer.Option("--seconds", help="Length of a window.")] = "8s",
    repeats: Annotated[
        int, typer.Option("--repeats", min=1, max=100, help="How often each configuration is measured.")
    ] = 1,
    out: Annotated[Path, typer.Option("--out", help="Where the result goes.")] = Path("sweep.json"),
    seed: Seed = 0,
) -> None:
    """Measure all configurations of a grid under requests of our own. Restores what ran before."""
    from tuner.cli.console import configuration_text, make_console, plain
    from tuner.errors import InvalidInput
    from tuner.files.storage import make_folder_of
    from tuner.profiler.attachment import attach

    window = parse_window(seconds, "--seconds")
    if load.rate is None and load.arrival is None:
        raise InvalidInput("--rate", "missing", "a sweep sends its own load: give --rate 150 or --arrival")
    wanted = parse_grids(grid or [], "--grid")
    make_folder_of(out, "--out")
    with attach(target, grids=wanted, load=load, seed=seed, foreign_limit=foreign_limit) as attachment:
        result, space = _measure(attachment, wanted, window, repeats, out), attachment.space
        _check_measured(result, out)
        console = make_console()
        console.print(_table(result, space, load))
        for row in result.rows:
            text = configuration_text(space, space.effective(row.configuration))
            if row.refused:
                console.print(f"[yellow]refused:[/yellow] {text}: {plain(row.refused)}")
            if row.disturbance:
                console.print(f"[yellow]disturbed:[/yellow] {text}: {plain(row.disturbance)}")
        print(out)


def _check_measured(result: SweepResult, out: Path) -> None:
    """Raise InvalidInput if no configuration has a window that shows what it is worth."""
    from tuner.errors import InvalidInput

    if not any(row.windows for row in result.rows):
        said = "; ".join(dict.fromkeys(row.refused for row in result.rows))
        raise InvalidInput("--grid", f"the server refused every configuration: {said}")
    if not any(row.undisturbed for row in result.rows):
        said = next(row.disturbance for row in reversed(result.rows) if row.windows)
        raise InvalidInput("sweep", f"every window was disturbed, the last one: {said}", f"{out} has them")


def _measure(
    attachment: Attachment, wanted: dict[str, tuple[float, ...]], window: float, repeats: int, out: Path
) -> SweepResult:
    """Measure and store after every window, so that Ctrl-C keeps what was measured."""
    from contextlib import closing

    from tuner.cli.console import (
        command_line,
        configuration_text,
        make_console,
        make_progress,
        print_notes,
    )
    from tuner.control.drive.sweep import SweepResult, measure_configurations
    from tuner.measurement import known

    space, described = attachment.space, attachment.description
    chosen = to_measure(space, wanted, attachment.backend.current())
    result = SweepResult(
        command=command_line(),
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        target=described.target,
        server=f"{described.server} {described.version}",
        model=described.model,
        rate=known(attachment.rate),
        seconds=window,
        repeats=repeats,
        knobs=space.to_json(),
    )
    console = make_console()
    print_notes(console, without_effect(space, wanted, chosen))
    with make_progress(console) as progress:
        task = progress.add_task("sweep", total=len(chosen) * repeats)
        turns = measure_configurations(
            attachment.backend,
            attachment.profiler,
            chosen,
            seconds=window,
            repeats=repeats,
            restore=attachment.restore,
        )
        with closing(turns):  # which restores the server before the backend is closed, whatever happens here
            for configuration, outcome in turns:
                result.add(configuration, outcome)
                result.save(out)
                text = configuration_text(space, space.effective(configuration))
                progress.update(task, advance=1, description=text)
    return result


def to_measure(
    space: KnobSpace, wanted: Collection[str], running: Mapping[str, float]
) -> list[Configuration]:
    """Return the configurations of a grid that differ in effect.

    Args:
        space: The knobs.
        wanted: The knobs that have a grid; the others keep their value. All are turned if there is none.
        running: What the server runs, which need not be on the grids.
    """
    every = [space.decode(int(index)) for index in space.distinct]
    kept = {name: running[name] for name in space.names if wanted and name not in wanted}
    near = {name: value for name, value in space.nearest(running).items() if name in kept}
    # The delay has no effect at a batch of 1, and is 0 there: that configuration keeps it all the same.
    chosen = [c for c in every if space.encode(c) == space.canonical[space.encode(c.replace(**near))]]
    return [c.replace(**{name: kept[name] for name in kept if c[name] == near[name]}) for c in chosen]


def without_effect(
    space: KnobSpace, wanted: Collection[str], chosen: Sequence[Mapping[str, float]]
) -> list[str]:
    """Return for each knob that has a grid, but an effect in no configuration, why that is.

    Args:
        space: The knobs.
        wanted: The knobs that have a grid.
        chosen: The configurations that are measured.
    """
    knobs, notes = {knob.name: knob for knob in space.knobs}, []
    for knob in space.knobs:
        if knob.name not in wanted or knob.idle_when is None:
            continue
        other, value = knob.idle_when
        if other in knobs and all(configuration[other] == value for configuration in chosen):
            where = f"{other}={knobs[other].format(value)}"
            notes.append(f"{knob.name} has no effect at {where}; give --grid {other}= with other values")
    return notes


def _table(result: SweepResult, space: KnobSpace, load: Load) -> object:
    from rich.table import Table

    from tuner.cli.console import configuration_text, number_text, plain
    from tuner.duration import format_ms

    under = f"at {result.rate:g} requests/s" if result.rate is not None else f"under {load.arrival}"
    table = Table(title=plain(f"{result.model} {under}, best p95 first"), title_justify="left")
    table.add_column("configuration")
    for name in ("p50, ms", "p95, ms", "p99, ms", "batch", "CPU, cores", "windows"):
        table.add_column(name, justify="right")
    for row in result.ranked():
        cut_off = row.median("cut_off") * 1e3
        latencies = [
            format_ms(row.median(f"latency_{name}") * 1e3, cut_off) for name in ("p50", "p95", "p99")
        ]
        usage = [number_text(row.median("batch_mean"), ".1f"), number_text(row.median("cpu"), ".2f")]
        table.add_row(
            configuration_text(space, space.effective(row.configuration)), *latencies, *usage,
            f"{len(row.undisturbed)} of {len(row.windows)}",
        )  # fmt: skip
    return table

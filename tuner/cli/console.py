"""What the commands print: one line per window, and tables."""

from __future__ import annotations

import math
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tuner.duration import format_duration, format_ms
from tuner.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

    from tuner.control import WindowRecord
    from tuner.knobs import Configuration, KnobSpace
    from tuner.laboratory.progress import Bars
    from tuner.measurement import Measurement
    from tuner.objective import Objective
    from tuner.report import Served

__all__ = [
    "command_line",
    "configuration_text",
    "count_text",
    "make_console",
    "make_progress",
    "make_table",
    "measurement_text",
    "number_text",
    "plain",
    "print_notes",
    "progress_bars",
    "rate_text",
    "served_table",
    "window_text",
]


FEW = 10.0
"""Requests/s below which a window's line shows tenths."""
NOTICED = 0.01
"""Contention above which a window's line shows it."""


def command_line() -> str:
    """Return the command as the user wrote it, to be kept with results; bytes that are no text as codes."""
    written = " ".join(["tuner", *sys.argv[1:]])
    return written.encode(errors="backslashreplace").decode()


def count_text(count: int, noun: str) -> str:
    """Return a number with its noun, as ``1 model`` or ``2 models``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def make_console() -> Console:
    """Return the console for results; colours only on a terminal.

    Where its reader has gone it raises `BrokenPipeError`, as ``print`` does.
    """
    from rich.console import Console

    class ResultConsole(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would end the process, with the code of a difference

    console = ResultConsole(highlight=False)
    return console if console.is_terminal else ResultConsole(highlight=False, width=140)


def plain(text: str) -> str:
    """Return a text for a console, on one line, without escape sequences and markup."""
    from rich.markup import escape

    return escape(printable(text).replace("\n", " "))


def print_notes(console: Console, notes: Iterable[str]) -> None:
    """Print what is worth knowing beside a result."""
    for note in notes:
        console.print(f"[yellow]note:[/yellow] {plain(note)}")


def make_progress(console: Console) -> Progress:
    """Return a progress bar with the time left."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )


def progress_bars(console: Console) -> Bars:
    """Return a function that opens progress bars, nested ones below each other.

    Nothing is drawn, and no thread runs, while none is open.
    """
    progress = make_progress(console)
    watched = 0

    @contextmanager
    def bar(description: str, total: int) -> Iterator[Callable[[], None]]:
        nonlocal watched
        if watched == 0:
            progress.start()
        watched += 1
        task = progress.add_task(description, total=total)
        try:
            yield lambda: progress.advance(task)
        finally:
            progress.remove_task(task)
            watched -= 1
            if watched == 0:
                progress.stop()

    return bar


def configuration_text(space: KnobSpace, configuration: Configuration) -> str:
    """Write a configuration briefly: ``batch 8 · delay 2ms · parallelism 1``."""
    parts = [
        f"{space.roles.get(knob.name, knob.name)} {knob.format(configuration[knob.name])}"
        for knob in space.knobs
        if knob.name in configuration
    ]
    return plain(" · ".join(parts))


def measurement_text(measurement: Measurement) -> str:
    """Write a window in one line without a verdict."""
    m = measurement
    parts = [f"{m.arrival_rate:7.1f} r/s"]
    shown = ("p50", "p95", "p99") if math.isfinite(m.latency_p95) else ("mean",)
    parts += [f"{statistic} {m.text(statistic):>7}" for statistic in shown]
    parts += [f"queue {format_duration(m.queue_mean):>7}", f"batch {number_text(m.batch_mean, '4.1f')}"]
    if math.isfinite(m.network_mean):
        parts += [f"network {format_duration(m.network_mean):>7}"]
    if math.isfinite(m.cpu):
        parts += [f"cpu {m.cpu:4.2f}", f"foreign {m.foreign_cpu:4.2f}"]
    if m.contention > NOTICED:
        parts += [f"contention {m.contention:.0%}"]
    if math.isfinite(m.gpu):
        parts += [f"gpu {m.gpu:4.0%}"]
    if m.failures:
        parts += [f"[red]{m.failures} failed[/red]"]
    return "  ".join(parts)


def window_text(record: WindowRecord, space: KnobSpace, objective: Objective, running: Configuration) -> str:
    """Write one turn of the control loop: load, latency against the SLO, configuration, decision, reason."""
    m = record.measurement
    if m is None:
        return f"{record.number:4d}  [yellow]{plain(f'{record.error}; {record.decision.reason}')}[/yellow]"
    statistic = objective.slo.statistic
    mark = "[green]✓[/green]" if objective.kept(m) else "[red]✗[/red]"
    if m.disturbed:
        mark = "[yellow]~[/yellow]"
    failed = f" [red]{m.failures} failed[/red]" if m.failures else ""
    few = ".1" if 0 < m.arrival_rate < FEW else ".0"
    line = (
        f"{record.number:4d}  {m.arrival_rate:5{few}f} r/s  {statistic} {m.text(statistic):>7} {mark}  "
        f"cpu {number_text(m.cpu, '4.2f')}{failed}  {configuration_text(space, m.configuration)}"
    )
    verb = {"Apply": "[cyan]apply[/cyan]", "Rollback": "[red]roll back[/red]"}.get(
        type(record.decision).__name__, "hold"
    )
    arrow = f" → {configuration_text(space, running)}" if record.report is not None else ""
    if record.outcome == "recommended" and record.wanted is not None:
        verb, arrow = f"would {verb}", f" → {configuration_text(space, record.wanted)}"
    problem = f" [red]not done: {plain(record.error)}[/red]" if record.error else ""
    return f"{line}\n      {verb}{arrow}  [dim]{plain(record.decision.reason)}[/dim]{problem}"


def make_table(title: str | None, words: Sequence[str] = (), numbers: Sequence[str] = ()) -> Table:
    """Return an empty table: columns of words, then columns of numbers, which stand to the right."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=title, title_justify="left", header_style="bold", box=SIMPLE_HEAD)
    for name in words:
        table.add_column(name)
    for name in numbers:
        table.add_column(name, justify="right")
    return table


def served_table(title: str, rows: list[tuple[str, str, Served]], space: KnobSpace) -> Table:
    """Return a table of configurations and how they served."""
    from tuner.knobs import Configuration

    table = make_table(title)
    for name in ("r/s", "", "configuration"):
        table.add_column(name, no_wrap=True)
    for name in ("p50 ms", "p95 ms", "p99 ms", "cores", "SLO"):
        table.add_column(name, justify="right")
    for load, name, row in rows:
        verdict = "[green]kept[/green]" if row.slo_kept else "[red]broken[/red]"
        cut_off = row.figure("cut_off_ms")
        latencies = [format_ms(row.figure(name), cut_off) for name in ("p50_ms", "p95_ms", "p99_ms")]
        text = configuration_text(space, Configuration(row.configuration))
        table.add_row(load, name, text, *latencies, number_text(row.figure("cpu"), ",.2f"), verdict)
    return table


def rate_text(rate: float) -> str:
    """Return a rate as tables show it, without the unit."""
    return f"{rate:,.1f}" if rate < 1000 else f"{rate:,.0f}"


def number_text(value: float | None, form: str) -> str:
    """Write a number in a form such as ``,.1f``; one that is not known is a dash of the same width."""
    if value is None or not math.isfinite(value):
        return "–".rjust(len(f"{0:{form}}"))
    return f"{value:{form}}"

"""``tuner history`` and ``tuner explain``: what the daemon did, and why."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.state import STATE, ReadState, opened_store

if TYPE_CHECKING:
    from tuner.control.store.history import StoredDecision

__all__ = ["EXAMPLES", "explain", "history"]

EXAMPLES = """Examples: [bold]tuner history --target resnet50[/bold] · [bold]tuner explain 42[/bold]"""

LONGEST = 2000
"""Characters of an event that are shown."""

Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object.")]


def history(
    state: ReadState = STATE,
    target: Annotated[str | None, typer.Option("--target", help="Of this target only.")] = None,
    count: Annotated[int, typer.Option("--count", min=1, max=100_000, help="How many.")] = 20,
    holds: Annotated[bool, typer.Option("--all", help="Also decisions to change nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Show the daemon's decisions, newest last, and unusual events."""
    from tuner.control.store.history import events
    from tuner.control.store.history import history as read
    from tuner.printable import one_line

    with opened_store(state, reading=True) as store:
        entries = read(store, target=target, count=count, holds=holds)
        happened = events(store, target=target, count=count)
    if as_json:
        unusual = [{"target": e.target, "time": e.time, "event": e.sentence} for e in happened]
        print(
            json.dumps({"decisions": [entry.model_dump() for entry in entries], "events": unusual}, indent=1)
        )
        return
    _show(entries)
    for event in happened:
        about = f" {one_line(event.target)}" if event.target else ""
        moment = f"{datetime.fromtimestamp(event.time):%Y-%m-%d %H:%M:%S}"
        print(f"{moment}{about}: {one_line(event.sentence, LONGEST)}")


def explain(
    decision: Annotated[int, typer.Argument(help="Its number, from `tuner history`.")],
    state: ReadState = STATE,
    as_json: Json = False,
) -> None:
    """Say why a decision was made, what was expected of it and what followed."""
    from tuner.cli.console import make_console, plain
    from tuner.control.store.history import explain as read

    with opened_store(state, reading=True) as store:
        entry, lines = read(store, decision)
    if as_json:
        print(json.dumps(entry.model_dump() | {"explanation": dict(lines)}, indent=1))
        return
    console = make_console()
    console.print(f"[bold]decision {entry.decision}[/bold] · {plain(entry.target)} · {entry.moment()}")
    for heading, sentence in lines:
        console.print(f"  [dim]{heading:9}[/dim] {plain(sentence)}", soft_wrap=True)


def _show(entries: list[StoredDecision]) -> None:
    from tuner.cli.console import make_console, make_table, plain

    table = make_table(None)
    for name in ("", "when", "target", "decision", "outcome", "cost expected", "observed", "why"):
        table.add_column(name, justify="right" if name in ("", "cost expected", "observed") else "left")
    for entry in entries:
        table.add_row(
            str(entry.decision),
            entry.moment(),
            plain(entry.target),
            entry.action if entry.action == "hold" else plain(f"{entry.verb()}: {entry.change()}"),
            plain(entry.outcome),
            "" if entry.expected is None else f"{entry.expected:.2f}",
            "" if entry.observed is None else f"{entry.observed:.2f}",
            plain(entry.reason),
        )
    make_console().print(table)

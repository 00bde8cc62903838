"""``tuner pause``, ``resume``, ``pin``, ``unpin`` and ``rollback``: an operator's orders to the daemon."""

from __future__ import annotations

from typing import Annotated

import typer

from tuner.cli.state import STATE, State, opened_store

__all__ = ["EXAMPLES", "pause", "pin", "resume", "rollback", "unpin"]

EXAMPLES = """Examples: [bold]tuner pause resnet50 --why "release of Friday"[/bold] · \
[bold]tuner pin resnet50 --set max_batch_size=8[/bold] · [bold]tuner rollback resnet50[/bold].
The daemon follows after the window that it is measuring; docs/daemon.md says what each means."""

TargetName = Annotated[str, typer.Argument(metavar="TARGET", help="Its name in the daemon's file.")]


def pause(
    target: TargetName,
    state: State = STATE,
    why: Annotated[str, typer.Option("--why", help="Kept with the order.")] = "",
) -> None:
    """Change nothing on a target, whatever happens, until `tuner resume`. Windows are still measured."""
    from tuner.control.store import order_book

    with opened_store(state) as store:
        order_book.pause(store, target, why)
    print(f"{target} is paused")


def resume(target: TargetName, state: State = STATE) -> None:
    """End a pause."""
    from tuner.control.store import order_book

    with opened_store(state) as store:
        order_book.resume(store, target)
    print(f"{target} is no longer paused")


def pin(
    target: TargetName,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Replaces a value of what it runs now. Repeat."),
    ] = None,
    state: State = STATE,
) -> None:
    """Keep a target at what it runs now, or at other values, until `tuner unpin`. Only in mode `apply`."""
    from tuner.control.store import order_book
    from tuner.errors import InvalidInput

    values = _values(changes or [])
    with opened_store(state) as store:
        try:
            pinned = order_book.in_words(store, target, order_book.pin(store, target, values))
        except InvalidInput as error:
            mark, _, name = error.setting.partition(" ")
            if mark != "knob" or name not in values:
                raise
            raise InvalidInput(f"--set {name}", str(error).removeprefix(f"{error.setting}: ")) from error
        idle = order_book.idle_mode(store, target)
    waits = f"; it takes effect in mode apply, not in {idle}" if idle else ""
    print(f"{target} is pinned to {pinned}{waits}")


def unpin(target: TargetName, state: State = STATE) -> None:
    """Let a pinned target be tuned again."""
    from tuner.control.store import order_book

    with opened_store(state) as store:
        order_book.unpin(store, target)
    print(f"{target} is no longer pinned")


def rollback(target: TargetName, state: State = STATE) -> None:
    """Undo the last change of a target, once. Only in mode `apply`."""
    from tuner.control.store import order_book

    with opened_store(state) as store:
        previous = order_book.in_words(store, target, order_book.roll_back(store, target))
        idle = order_book.idle_mode(store, target)
    unless = f", but only in mode apply, not in {idle}" if idle else ""
    print(f"{target} goes back to {previous}{unless}")


def _values(changes: list[str]) -> dict[str, float]:
    """Read repeated ``NAME=VALUE`` options.

    Raises:
        InvalidInput: One has another form, or is given twice.
    """
    from tuner.errors import InvalidInput
    from tuner.knobs import parse_grid

    values: dict[str, float] = {}
    for text in changes:
        name, _, value = (part.strip() for part in text.partition("="))
        if not (name and value) or "," in value:
            raise InvalidInput("--set", f"'{text}' is not NAME=VALUE", "write it like max_batch_size=8")
        name, (read,) = parse_grid(text, "--set")
        if name in values:
            raise InvalidInput(f"--set {name}", "given twice", "a knob is pinned to one value")
        values[name] = read
    return values

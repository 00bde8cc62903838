"""Orders of operators in the store: they outlive the daemon, and any process may give them."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from tuner.control.decide.orders import Orders
from tuner.control.sentence import log_sentence
from tuner.control.store.database import PARSE_ERRORS
from tuner.control.store.known import current_target
from tuner.control.store.rows import KnobRow, configuration_of, knobs_of, same
from tuner.control.store.store import Store
from tuner.errors import InvalidInput, StorageError
from tuner.knobs import Configuration
from tuner.printable import one_line

__all__ = [
    "StoredOrders",
    "all_orders",
    "carry_over",
    "idle_mode",
    "in_words",
    "orders_of",
    "pause",
    "pin",
    "resume",
    "roll_back",
    "salvaged_orders",
    "unpin",
]

LONGEST_WORD = 200
"""Most characters of the reason of an order."""


class StoredOrders:
    """The order book of one target of a daemon. Until it could be read for the first time, all is paused.

    Args:
        store: The store.
        name: The target's name.
    """

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name
        self._last = Orders(paused="the orders in the store cannot be read")

    def read(self) -> Orders:
        """Return the orders in force; while the store cannot be read, those read last."""
        try:
            self._last = orders_of(self._store, self._name)
        except StorageError as error:
            log_sentence(self._name, str(error), logging.WARNING)
        return self._last

    def moved(self, pinned: Configuration, found: Configuration) -> None:
        """Pin a server to the configuration that somebody else gave it while it was pinned."""
        self._replace("pinned", pinned, json.dumps(dict(found)))

    def done(self, rollback: Configuration) -> None:
        """Delete the order to roll back: it was carried out, or cannot be."""
        self._replace("rollback", rollback, None)

    def _replace(self, column: str, order: Configuration, value: str | None) -> None:
        """Replace an order in one transaction, unless an operator has given another one since it was read."""
        with self._store.writing() as db:
            row = db.execute("SELECT * FROM orders WHERE name = ?", (self._name,)).fetchone()
            if row is not None and getattr(_orders(self._store, row), column) == order:
                db.execute(f"UPDATE orders SET {column} = ? WHERE name = ?", (value, self._name))


def in_words(store: Store, name: str, configuration: Mapping[str, float]) -> str:
    """Return a configuration of a target as people write it: ``max_batch_size=8 max_queue_delay=2ms``.

    Raises:
        InvalidInput: There is no such target.
        StorageError: The store cannot be read.
    """
    knobs = {knob.name: knob for knob in store.knobs(_target(store, name)["knobs"])}
    return " ".join(
        f"{knob}={knobs[knob].format(value) if knob in knobs else format(value, 'g')}"
        for knob, value in configuration.items()
    )


def idle_mode(store: Store, name: str) -> str:
    """Return the mode of a target in which no order changes it; empty if one does, or that is not known.

    Raises:
        InvalidInput: There is no such target.
        StorageError: The store cannot be read.
    """
    mode = one_line(_target(store, name)["mode"] or "", LONGEST_WORD)
    return "" if mode == "apply" else mode


def orders_of(store: Store, name: str) -> Orders:
    """Return the orders in force for a target; none if there is no such target.

    Raises:
        StorageError: The store cannot be read.
    """
    row = store.row("SELECT * FROM orders WHERE name = ?", name)
    return _orders(store, row) if row is not None else Orders()


def all_orders(store: Store) -> dict[str, Orders]:
    """Return the orders in force by target; targets without any may be missing."""
    return {row["name"]: _orders(store, row) for row in store.rows("SELECT * FROM orders")}


def salvaged_orders(path: Path) -> dict[str, Orders] | None:
    """Return the orders by target in a damaged store; None if they cannot be read."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            db.row_factory = sqlite3.Row
            db.execute("PRAGMA writable_schema = ON")  # read what is left of a file that is too short
            return {str(row["name"]): _parsed(row) for row in db.execute("SELECT * FROM orders")}
    except (sqlite3.Error, *PARSE_ERRORS):
        return None


def carry_over(db: sqlite3.Connection, orders: Mapping[str, Orders]) -> None:
    """Write the orders that were in force before a store was lost; they replace those in the new one.

    Args:
        db: The new store's open transaction.
        orders: The orders by target.
    """
    for name, one in orders.items():
        pinned, rollback = (
            None if wanted is None else json.dumps(dict(wanted)) for wanted in (one.pinned, one.rollback)
        )
        db.execute(
            "INSERT OR REPLACE INTO orders (name, paused, pinned, rollback) VALUES (?, ?, ?, ?)",
            (name, one.paused or None, pinned, rollback),
        )


def _orders(store: Store, row: sqlite3.Row) -> Orders:
    with store.parsing_rows():
        return _parsed(row)


def _parsed(row: sqlite3.Row) -> Orders:
    """Return the orders in a row; a ValueError or the like if it holds something else."""
    if not isinstance(row["paused"], str | None):
        raise TypeError("the reason of a pause is no text")
    return Orders(
        paused=row["paused"] or "",
        pinned=configuration_of(row["pinned"]) if row["pinned"] else None,
        rollback=configuration_of(row["rollback"]) if row["rollback"] else None,
    )


def pause(store: Store, name: str, why: str) -> None:
    """Order that a server is not changed from the next decision on, whatever happens.

    Args:
        store: The daemon's store.
        name: The target's name.
        why: The reason, and who gives the order.

    Raises:
        InvalidInput: There is no such target.
        StorageError: The order cannot be written.
    """
    target = _known(store, name)
    word = one_line(why, LONGEST_WORD) or "by the operator"
    _set(store, name, paused=word)
    _note(store, name, target, f"paused: {word}")


def resume(store: Store, name: str) -> None:
    """Order the end of a pause; see :func:`pause` for the errors."""
    target = _known(store, name)
    _set(store, name, paused=None)
    _note(store, name, target, "resumed")


def pin(store: Store, name: str, changes: Mapping[str, float] | None = None) -> Configuration:
    """Order that a server keeps one configuration.

    Args:
        store: The daemon's store.
        name: The target's name.
        changes: Values that differ from its configuration now.

    Returns:
        The configuration that it is pinned to.

    Raises:
        InvalidInput: There is no such target, knob or value.
        StorageError: The order cannot be written.
    """
    row = _target(store, name)
    wanted = store.configuration(row["running"]).replace(**_checked(store.knobs(row["knobs"]), changes or {}))
    _set(store, name, pinned=json.dumps(dict(wanted)))
    store.note(f"pinned to {in_words(store, name, wanted)}", row["id"])
    return wanted


def unpin(store: Store, name: str) -> None:
    """Order that the server is tuned again; see :func:`pause` for the errors."""
    target = _known(store, name)
    _set(store, name, pinned=None)
    _note(store, name, target, "no longer pinned")


def roll_back(store: Store, name: str) -> Configuration:
    """Order to undo, once, the change that led to the server's configuration; a pin ends, too.

    Args:
        store: The daemon's store.
        name: The target's name.

    Returns:
        The configuration that it goes back to.

    Raises:
        InvalidInput: There is no such target, or its configuration does not come from a change of ours.
        StorageError: The order cannot be written.
    """
    row = _target(store, name)
    previous = _before(store, row)
    if previous is None:
        raise InvalidInput("TARGET", f"{name} has nothing to roll back: what it runs is not a change of ours")
    _set(store, name, rollback=json.dumps(dict(previous)), pinned=None)
    store.note(f"to be rolled back to {in_words(store, name, previous)}", row["id"])
    return previous


def _before(store: Store, target: sqlite3.Row) -> Configuration | None:
    """Return what a target ran before our last change to what it runs now; None if that is none of ours."""
    changes = store.rows(
        "SELECT previous, configuration FROM decision WHERE target = ? AND outcome = 'applied' "
        "AND action = 'apply' GROUP BY previous, configuration ORDER BY max(id) DESC",
        target["id"],
    )
    with store.parsing_rows():
        knobs, running = knobs_of(target["knobs"]), configuration_of(target["running"])
        for change in changes:
            # A knob may have been added since: it has run as it runs now.
            previous, wanted = (
                Configuration({**running, **configuration_of(change[name])})
                for name in ("previous", "configuration")
            )
            if same(knobs, wanted, running) and not same(knobs, previous, wanted):
                return previous
    return None


def _target(store: Store, name: str) -> sqlite3.Row:
    """Return the current target of a name."""
    row = current_target(store, name)
    if row is None:
        known = sorted({row["name"] for row in store.rows("SELECT name FROM target")})
        raise InvalidInput(
            "TARGET", f"there is no target '{name}'", f"there are {', '.join(known) or 'none'}"
        )
    return row


def _known(store: Store, name: str) -> int | None:
    """Return the number of the current target of a name; None where only orders are known under it.

    So it is after the store was lost, until its server answers.
    """
    ordered = store.row("SELECT * FROM orders WHERE name = ?", name) is not None
    if ordered and current_target(store, name) is None:
        return None
    return int(_target(store, name)["id"])


def _note(store: Store, name: str, target: int | None, sentence: str) -> None:
    """Store an event about a target."""
    store.note(sentence if target is not None else f"{name}: {sentence}", target)


def _checked(knobs: Sequence[KnobRow], changes: Mapping[str, float]) -> Mapping[str, float]:
    known = {knob.name: knob for knob in knobs}
    for name, value in changes.items():
        if name not in known:
            raise InvalidInput(f"knob {name}", "unknown", f"the knobs are {', '.join(known)}")
        knob = known[name]
        if value not in knob.grid:
            problem = f"{knob.format(value)} is not one of its values"
            raise InvalidInput(f"knob {name}", problem, f"it has {', '.join(map(knob.format, knob.grid))}")
    return changes


def _set(store: Store, name: str, **orders: str | None) -> None:
    """Write orders by their columns, whose names come from this module, at once."""
    with store.writing() as db:
        db.execute("INSERT OR IGNORE INTO orders (name) VALUES (?)", (name,))
        for column, value in orders.items():
            db.execute(f"UPDATE orders SET {column} = ? WHERE name = ?", (value, name))

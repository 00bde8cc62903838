"""Brings the row of a target, and its orders, up to what is attached now: name, URL, knobs and objective."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable

from tuner.control.sentence import log_sentence
from tuner.control.store.database import Database
from tuner.control.store.known import current_target, known_target
from tuner.control.store.rows import configuration_of, insert, knobs_of, text_of
from tuner.knobs import Configuration, KnobSpace

__all__ = ["TargetUpdate"]

ENDS = {"pinned": "no longer pinned to", "rollback": "not rolled back to"}
"""What an event says of the end of an order for a configuration."""
ELSEWHERE = "that was ordered for another URL"


class TargetUpdate:
    """What the store holds of a target, within the transaction that brings it up to what is attached now.

    Args:
        store: The store.
        db: Its open transaction.
        name: The target's name.
        url: Its URL, without credentials.
        space: Its knobs.
        running: Its configuration.
        now: Returns seconds since 1970.
    """

    def __init__(
        self,
        store: Database,
        db: sqlite3.Connection,
        *,
        name: str,
        url: str,
        space: KnobSpace,
        running: Configuration,
        now: Callable[[], float],
    ) -> None:
        self._store = store
        self._db = db
        self._name = name
        self._url = url
        self._space = space
        self._running = running
        self._now = now

    def write(self, objective: str | None, mode: str | None) -> sqlite3.Row:
        """Write it, and return the row of the target.

        Args:
            objective: The key of its objective; None to leave the one that is stored.
            mode: How the daemon treats it; None if that is not known.
        """
        self._rename()
        before = current_target(self._store, self._name)
        row = self._attach()
        self._complete(row)
        self._check_orders(before, row)
        if objective is not None and row["objective"] != objective:
            self._set_objective(row, objective)
        self._db.execute("UPDATE target SET mode = ? WHERE id = ?", (mode, row["id"]))
        return self._row(row["id"])

    def _row(self, target: int) -> sqlite3.Row:
        row: sqlite3.Row = self._db.execute("SELECT * FROM target WHERE id = ?", (target,)).fetchone()
        return row

    def _rename(self) -> None:
        """Give a target the name and the URL that it has now, if it is known by others.

        Its orders go along, unless one of the two names stands for another target, too. Then a pin or a
        rollback ends: orders for a configuration belong to the last server of a name, and neither may go to
        the next one.
        """
        name, url, store = self._name, self._url, self._store
        row = known_target(store, name, url)
        if row is None or (row["name"], row["url"]) == (name, url):
            return
        taken, ours = current_target(store, name) is not None, current_target(store, row["name"])
        self._db.execute("UPDATE target SET name = ?, url = ? WHERE id = ?", (name, url, row["id"]))
        renamed = self._row(row["id"])
        self._log_event(renamed, f"is the target that was '{row['name']}', {row['url']}, and goes on as that")
        if name == row["name"]:
            return
        for order in ENDS:
            self._end_order(order, name, renamed, ELSEWHERE)
        if not taken and current_target(store, row["name"]) is None:
            # A pause that was left under the new name belongs to that name.
            self._db.execute(
                "UPDATE OR REPLACE orders SET name = :new, paused = coalesce(paused, "
                "(SELECT paused FROM orders WHERE name = :new)) WHERE name = :old",
                {"new": name, "old": row["name"]},
            )
        elif ours is not None and ours["id"] == row["id"]:
            why = "one of its two names is that of another target, too"
            for order in ENDS:
                self._end_order(order, row["name"], renamed, why)

    def _attach(self) -> sqlite3.Row:
        """Make the target the current one of its name, and add it if it is new; return its row."""
        text, knobs = text_of(self._running), json.dumps(self._space.to_json())
        self._db.execute(
            "INSERT INTO target (name, url, knobs, original, running, attached) VALUES "
            "(?, ?, ?, ?, ?, (SELECT coalesce(max(attached), 0) + 1 FROM target)) "
            "ON CONFLICT (name, url) DO UPDATE SET knobs = excluded.knobs, attached = excluded.attached",
            (self._name, self._url, knobs, text, text),
        )
        found = "SELECT * FROM target WHERE name = ? AND url = ?"
        row: sqlite3.Row = self._db.execute(found, (self._name, self._url)).fetchone()
        return row

    def _complete(self, row: sqlite3.Row) -> None:
        """Store in the configurations of a target what runs now of knobs that were added since."""
        running = self._running
        for column in ("original", "running", "last_good"):
            stored = self._configuration(row[column]) if row[column] is not None else running
            if set(running) - set(stored):
                values = text_of({**running, **stored}), row["id"]
                self._db.execute(f"UPDATE target SET {column} = ? WHERE id = ?", values)

    def _check_orders(self, before: sqlite3.Row | None, row: sqlite3.Row) -> None:
        """Delete a pin and a rollback that were ordered for another server, or for values that knobs lack.

        Others get what runs now of knobs that were added since.

        Args:
            before: The row of the target's name until now; None if the orders come from a store that was
                lost: then only orders for other knobs can be recognised.
            row: The row of the server that is attached now.
        """
        orders = self._db.execute("SELECT * FROM orders WHERE name = ?", (row["name"],)).fetchone()
        earlier, grids = self._grids(before or row), self._grids(row)
        regridded = any(earlier.get(name, grid) != grid for name, grid in grids.items())
        for order in ENDS:
            if orders is None or orders[order] is None:
                continue
            ordered, why = self._configuration(orders[order]), ""
            if before is not None and before["id"] != row["id"]:
                why = ELSEWHERE
            # What runs of a knob that was added may be on no grid; nobody has ordered that.
            elif not set(ordered) <= set(self._space.names) or (
                regridded and not self._space.covers(self._space.completed(ordered, self._running))
            ):
                why = "the knobs have other values now"
            if why:
                self._end_order(order, row["name"], row, why)
            else:
                values = text_of({**self._running, **ordered}), row["name"]
                self._db.execute(f"UPDATE orders SET {order} = ? WHERE name = ?", values)

    def _end_order(self, order: str, name: str, row: sqlite3.Row, why: str) -> None:
        """Delete an order for a configuration that stands under a name, if there is one, and say why.

        Args:
            order: Its column.
            name: The name.
            row: The target whose history says so.
            why: Why it ends.
        """
        stored = self._db.execute(f"SELECT {order} FROM orders WHERE name = ?", (name,)).fetchone()
        if stored is None or stored[order] is None:
            return
        self._db.execute(f"UPDATE orders SET {order} = NULL WHERE name = ?", (name,))
        ordered = self._space.format(self._configuration(stored[order]))
        self._log_event(row, f"{ENDS[order]} {ordered}: {why}")

    def _set_objective(self, row: sqlite3.Row, objective: str) -> None:
        """Store the new objective of a target; the last good configuration under another one is deleted.

        A store of an older version does not say what the objective was: it is taken to be the same.
        """
        target, before = row["id"], row["objective"]
        self._db.execute("UPDATE target SET objective = ? WHERE id = ?", (objective, target))
        if before is None:
            self._db.execute("UPDATE policy SET objective = ? WHERE target = ?", (objective, target))
            return
        self._db.execute(
            "UPDATE target SET last_good = NULL, bans = NULL, judged_from = number + 1 WHERE id = ?",
            (target,),
        )
        sentence = "has another objective now: earlier windows are judged by that, and learned anew"
        self._log_event(row, sentence)

    def _log_event(self, row: sqlite3.Row, sentence: str) -> None:
        """Log a sentence about the target of a row, and store it as an event."""
        log_sentence(row["name"], sentence, logging.WARNING)
        insert(self._db, "event", {"target": row["id"], "time": self._now(), "sentence": sentence})

    def _configuration(self, text: str) -> Configuration:
        with self._store.parsing_rows():
            return configuration_of(text)

    def _grids(self, row: sqlite3.Row) -> dict[str, list[float]]:
        with self._store.parsing_rows():
            return {knob.name: knob.grid for knob in knobs_of(row["knobs"])}

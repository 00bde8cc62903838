"""Finds a target in the store, by its name, or also by another name or another spelling of its URL."""

from __future__ import annotations

import sqlite3
from functools import lru_cache

from tuner.adapters.place import Place, places_of
from tuner.control.store.database import Database
from tuner.errors import InvalidInput

__all__ = ["current_target", "known_target"]


def current_target(store: Database, name: str) -> sqlite3.Row | None:
    """Return the target of a name that was attached last: the URL of a name may change.

    Raises:
        StorageError: The store cannot be read.
    """
    return store.row("SELECT * FROM target WHERE name = ? ORDER BY attached DESC, id DESC", name)


def known_target(store: Database, name: str, url: str) -> sqlite3.Row | None:
    """Return the row of a target, or else of the last one with the same model on one of its servers.

    Args:
        store: The store.
        name: Its name.
        url: Its URL, without credentials.

    Raises:
        StorageError: The store cannot be read.
    """
    if (row := store.row("SELECT * FROM target WHERE name = ? AND url = ?", name, url)) is not None:
        return row
    if not (places := _places(url)):
        return None
    for row in store.rows("SELECT id, url FROM target ORDER BY attached DESC, id DESC"):
        if places & _places(row["url"]):
            return store.row("SELECT * FROM target WHERE id = ?", row["id"])
    return None


@lru_cache(maxsize=4096)  # of a thousand new targets each is compared with all before it
def _places(url: str) -> frozenset[Place]:
    try:
        return places_of(url)
    except InvalidInput:  # such as of an adapter that is not installed any more
        return frozenset()

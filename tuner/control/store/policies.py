"""The trained agents of the targets, the newest few of each, with the objective whose costs they learned.

Of a few objectives that a target had before, the newest agent is kept: the file may have them again.
"""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.control.store.rows import insert
from tuner.control.store.store import Store
from tuner.errors import StorageError
from tuner.objective import Objective

if TYPE_CHECKING:
    from tuner.agents.agent import Agent

__all__ = ["keep_policy", "load_policy", "policy_number", "policy_origin", "save_policy"]

LONGEST_POLICY = 64 * 2**20
"""Most bytes of a policy's files together."""
POLICIES = 3
"""How many policies are kept of a target for its present objective."""
OBJECTIVES = 3
"""For how many earlier objectives of a target, the last ones, its newest policy is kept."""


def keep_policy(
    store: Store,
    target: int,
    number: int,
    folder: Path,
    objective: str | None = None,
    *,
    origin: str | None = None,
) -> None:
    """Keep the files of a policy, and delete all but the newest policies of the target for each objective.

    Args:
        store: The store.
        target: The target's number.
        number: The number of the last window that it has learned from.
        folder: The folder in which the agent saved it.
        objective: The key of the objective whose costs it has learned.
        origin: The digest of the policy of the file that it began from; empty without one, None if that is
            not known.

    Raises:
        OSError: Its files cannot be read.
        StorageError: It is too large, or cannot be written.
    """
    files = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
    if sum(map(len, files.values())) > LONGEST_POLICY:
        raise StorageError(f"policy of {sum(map(len, files.values())):,} bytes is too large to be kept")
    with store.writing() as db:
        values = {"target": target, "time": store.now(), "number": number, "objective": objective}
        policy = insert(db, "policy", values | {"origin": origin})
        rows = [(policy, name, content) for name, content in files.items()]
        db.executemany("INSERT INTO policy_file (policy, name, content) VALUES (?, ?, ?)", rows)
        db.execute(
            "DELETE FROM policy WHERE target = :target AND id NOT IN (SELECT id FROM policy "
            "WHERE target = :target AND objective IS :objective ORDER BY id DESC LIMIT :same) "
            "AND id NOT IN (SELECT max(id) FROM policy "
            "WHERE target = :target AND objective IS NOT :objective "
            "GROUP BY objective ORDER BY max(id) DESC LIMIT :others)",
            {"target": target, "objective": objective, "same": POLICIES, "others": OBJECTIVES},
        )


def save_policy(
    store: Store, target: int, agent: Agent, number: int, objective: Objective, *, origin: str | None = None
) -> None:
    """Save the policy that an agent has learned up to a window.

    Args:
        store: The store.
        target: The target's number in it.
        agent: The agent.
        number: The window's number.
        objective: The objective whose costs it has learned.
        origin: As for :func:`keep_policy`.

    Raises:
        StorageError: It is too large, or cannot be written.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="servetune-") as name:
            agent.save(Path(name))
            keep_policy(store, target, number, Path(name), objective.key, origin=origin)
    except OSError as error:  # the disk of temporary files may be full, too
        raise StorageError(f"a folder for temporary files cannot be used: {error}") from error


def policy_number(store: Store, target: int, objective: str | None = None) -> int | None:
    """Return the number of the last window that the newest policy for an objective has learned from.

    None if there is no such policy.

    Args:
        store: The store.
        target: The target's number.
        objective: The key of the objective whose costs it has learned.

    Raises:
        StorageError: It cannot be read.
    """
    row = _newest(store, target, objective)
    return int(row["number"]) if row is not None else None


def policy_origin(store: Store, target: int, objective: str | None = None) -> str | None:
    """Return the digest of the policy of the file that the newest policy for an objective began from.

    Empty if it began from none, None if there is no such policy, or that is not known.

    Args:
        store: The store.
        target: The target's number.
        objective: The key of the objective whose costs it has learned.

    Raises:
        StorageError: It cannot be read.
    """
    row = _newest(store, target, objective)
    return row["origin"] if row is not None else None


def load_policy(store: Store, target: int, folder: Path, objective: str | None = None) -> None:
    """Write the files of the newest policy for an objective, if there is one, to a folder.

    Args:
        store: The store.
        target: The target's number.
        folder: Where to.
        objective: The key of the objective whose costs it has learned.

    Raises:
        OSError: The files cannot be written.
        StorageError: The store cannot be read.
    """
    row = _newest(store, target, objective)
    if row is None:
        return
    for file in store.rows("SELECT name, content FROM policy_file WHERE policy = ?", row["id"]):
        (folder / Path(file["name"]).name).write_bytes(file["content"])


def _newest(store: Store, target: int, objective: str | None) -> sqlite3.Row | None:
    return store.row(
        "SELECT id, number, origin FROM policy WHERE target = ? AND objective IS ? ORDER BY id DESC",
        target,
        objective,
    )

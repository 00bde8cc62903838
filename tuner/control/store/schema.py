"""The tables of the daemon's store, and the upgrades from older versions."""

from __future__ import annotations

import re

from tuner.measurement import QUANTITIES

__all__ = ["ADDED", "ADDED_INDEX", "APPLICATION", "COLUMNS", "MEASURED", "SCHEMA", "UPGRADES", "VERSION"]

APPLICATION, VERSION = 0x5E12E7, 3
"""How the file identifies itself, and its version."""
MEASURED = {quantity.name: "INTEGER" if quantity.counted else "REAL" for quantity in QUANTITIES}
"""The columns of a window for its quantities, with their types; NULL is not known.

They need no other version of the file. A file that lacks some was written before these were measured, and
gets them when it is opened.
"""

BESIDE = {
    "change_seconds": "REAL",
    "change_requests": "REAL",
    "quantiles_mixed": "INTEGER",
    "timed": "REAL",
}
"""The columns of a window for what is no quantity of its own, but decides what it costs, and whether and how
surely something is learned from it; NULL is not known, or infinite."""
ADDED = {
    "target": {
        "objective": "TEXT",
        "judged_from": "INTEGER",
        "bans": "TEXT",
        "mode": "TEXT",
        "tries": "INTEGER",
    },
    "window": MEASURED | BESIDE,
    "decision": {"rule": "TEXT", "ended": "REAL"},
    "policy": {"objective": "TEXT", "origin": "TEXT"},
}
"""By table: the columns that a file of this version may lack."""
ADDED_INDEX = "CREATE INDEX IF NOT EXISTS decision_window ON decision (window);"
"""The index that a file of this version may lack: for each window that is deleted, SQLite looks for the
decision after it."""

ORDERS = """
CREATE TABLE orders (             -- orders of operators, by the name of a target
    name TEXT PRIMARY KEY,
    paused TEXT,                  -- who paused it and why; NULL if nobody has
    pinned TEXT,                  -- the configuration to keep until it is unpinned
    rollback TEXT                 -- the configuration to go back to, once
);
"""
SCHEMA = (
    f"""
CREATE TABLE target (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    url TEXT NOT NULL,            -- without credentials
    knobs TEXT NOT NULL,          -- as KnobSpace.to_json
    original TEXT NOT NULL,       -- its configuration when it was first attached
    running TEXT NOT NULL,
    last_good TEXT,
    number INTEGER NOT NULL DEFAULT 0,  -- of the last window
    attached INTEGER NOT NULL DEFAULT 0,  -- numbers attachments: of targets with one name the last is current
    objective TEXT,               -- as Objective.key, what last_good is good for; NULL is not known
    judged_from INTEGER,          -- number of the first window under it; NULL if there was no other before
    bans TEXT,                    -- configurations not to be tried again yet, as StoredBan; NULL if none
    mode TEXT,                    -- of the daemon's file, when it was last attached; NULL is not known
    tries INTEGER,                -- 1 while a maintenance window has yet to end with the best configuration
    UNIQUE (name, url)
);
CREATE TABLE window (
    id INTEGER PRIMARY KEY,
    target INTEGER NOT NULL REFERENCES target ON DELETE CASCADE,
    number INTEGER NOT NULL,
    time REAL NOT NULL,           -- when it ended, s since 1970
    seconds REAL NOT NULL,
    configuration TEXT NOT NULL,
    {", ".join(f"{name} {kind}" for name, kind in (MEASURED | BESIDE).items())},
    level INTEGER, cost REAL, kept INTEGER NOT NULL,
    disturbed TEXT NOT NULL       -- why nothing is learned from it; empty if something is
);
CREATE INDEX window_time ON window (target, time);
CREATE TABLE decision (
    id INTEGER PRIMARY KEY,
    target INTEGER NOT NULL REFERENCES target ON DELETE CASCADE,
    window INTEGER REFERENCES window ON DELETE SET NULL,
    time REAL NOT NULL,
    action TEXT NOT NULL,         -- hold, apply, roll back
    reason TEXT NOT NULL,
    rule TEXT,                    -- which rule decided; NULL is not known
    exploring INTEGER NOT NULL DEFAULT 0,
    configuration TEXT,           -- the configuration to run
    previous TEXT,                -- the configuration before
    expected REAL,                -- learned cost of the configuration before the change
    observed REAL,                -- cost of the first window that judged the change
    outcome TEXT NOT NULL,        -- held, recommended, postponed, applying, applied, failed, interrupted
    seconds REAL,                 -- how long the change took
    ended REAL,                   -- when its end was seen, s since 1970; NULL is not known
    error TEXT NOT NULL DEFAULT ''
);
CREATE INDEX decision_time ON decision (target, time);
CREATE INDEX decision_outcome ON decision (target, outcome);
{ADDED_INDEX}
CREATE TABLE event (
    id INTEGER PRIMARY KEY,
    target INTEGER REFERENCES target ON DELETE CASCADE,
    time REAL NOT NULL,
    sentence TEXT NOT NULL
);
CREATE TABLE policy (
    id INTEGER PRIMARY KEY,
    target INTEGER NOT NULL REFERENCES target ON DELETE CASCADE,
    time REAL NOT NULL,
    number INTEGER NOT NULL,      -- of the last window it has learned from
    objective TEXT,               -- as Objective.key, whose costs it has learned; NULL is not known
    origin TEXT                   -- digest of the policy of the file that it began from; empty without one,
                                  -- NULL is not known
);
CREATE TABLE policy_file (
    policy INTEGER NOT NULL REFERENCES policy ON DELETE CASCADE,
    name TEXT NOT NULL,
    content BLOB NOT NULL
);
"""
    + ORDERS
)
COLUMNS: dict[str, str] = dict(re.findall(r"\b([a-z_0-9]+) (INTEGER|REAL|TEXT|BLOB)\b", SCHEMA))
"""The type of each column; columns of one name have one type in all tables."""
UPGRADES = {1: ORDERS, 2: "ALTER TABLE target ADD COLUMN attached INTEGER NOT NULL DEFAULT 0;"}
"""The SQL that makes the next version of each older one."""

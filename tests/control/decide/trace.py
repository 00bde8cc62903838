"""Recorded decisions, to show that a change of the code leaves all of them as they were.

The files in ``traces/`` hold two kinds of records:

* ``daemon-*.json``: a target as it stands in the daemon's file, a number of windows, and a line for each
  decision, such as ``7 level=25 broken apply instances=1 max_batch_size=4 max_queue_delay=0.002``. The
  targets are those of the experiments ``daemon-spike`` and ``daemon-hindsight``; the daemon keeps them in
  virtual time.
* ``random.json``: the decisions of some random lives (`tests.control.decide.random_life`) in the same form,
  and digests of the decisions of a hundred long and ten thousand short ones.

``python -m tests.control.decide.trace`` records all of them again. Do that only when decisions are meant to
change, and read the difference.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.control.decide.random_life import random_life
from tuner.control.daemon.daemon import Daemon
from tuner.control.store.store import Store

TRACES = Path(__file__).with_name("traces")
WINDOWS, LIVES, READABLE = 150, 100, 4
"""Of a random life; how many lives have a digest, and how many of them are recorded decision by decision."""
HISTORIES, SHORT, TOGETHER = 10_000, 6, 100
"""Short random lives, their windows, and how many of them share a digest."""
DECISIONS = """
SELECT window.number, window.level, window.kept, decision.action, decision.exploring, decision.outcome,
    decision.configuration
FROM decision LEFT JOIN window ON window.id = decision.window ORDER BY decision.id
"""


def daemon_life(target: dict[str, Any], windows: int) -> list[str]:
    """Let a daemon keep a simulated target for some windows; return its decisions, one per line."""
    with tempfile.TemporaryDirectory(prefix="servetune-trace-") as folder:
        path = Path(folder) / "servetune.yaml"
        path.write_text(json.dumps({"state": "s.db", "targets": [target]}))  # JSON is YAML, too
        Daemon(path, fast=True, windows=windows, say=lambda *_: None).run()
        store = Store(path.with_name("s.db"), reading=True)
        try:
            return [_line(row) for row in store.rows(DECISIONS)]
        finally:
            store.close()


def digest(decisions: Sequence[str]) -> str:
    """Return a short digest of the decisions of a life."""
    return hashlib.sha256("\n".join(decisions).encode()).hexdigest()[:16]


def histories(number: int) -> str:
    """Return the digest of a hundred short lives, none of which is among the long ones."""
    seeds = range(LIVES + number * TOGETHER, LIVES + (number + 1) * TOGETHER)
    return digest([line for seed in seeds for line in random_life(seed, SHORT)])


def read(name: str) -> dict[str, Any]:
    """Return the content of a file of traces."""
    trace: dict[str, Any] = json.loads((TRACES / f"{name}.json").read_text())
    return trace


def record() -> None:
    """Live all lives again, and write down what was decided."""
    for path in sorted(TRACES.glob("daemon-*.json")):
        trace = read(path.stem)
        trace["decisions"] = daemon_life(trace["target"], trace["windows"])
        _write(path.stem, trace)
    lives = [random_life(seed, WINDOWS) for seed in range(LIVES)]
    short = [histories(number) for number in range(HISTORIES // TOGETHER)]
    digests = [digest(life) for life in lives]
    _write("random", {"digests": digests, "histories": short, "lives": lives[:READABLE]})


def _write(name: str, trace: dict[str, Any]) -> None:
    (TRACES / f"{name}.json").write_text(json.dumps(trace, indent=1) + "\n")


def _line(row: sqlite3.Row) -> str:
    words = [str(row["number"]), f"level={row['level']}", "kept" if row["kept"] else "broken", row["action"]]
    if row["configuration"] is not None:
        words += [f"{name}={value:g}" for name, value in json.loads(row["configuration"]).items()]
        words += ["exploring"] if row["exploring"] else []
        words += [row["outcome"]] if row["outcome"] != "applied" else []
    return " ".join(words)


if __name__ == "__main__":
    record()

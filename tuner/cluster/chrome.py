"""A recorded simulation as a Chrome trace, for ui.perfetto.dev to show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tuner.scheduling.log import ARRIVE, REFUSE, SEND, EventLog

__all__ = ["chrome_trace"]


def chrome_trace(log: EventLog, names: Sequence[str]) -> dict[str, Any]:
    """Return a log in the Trace Event Format, for chrome://tracing or Perfetto.

    One row per accelerator shows its batches, named by session and size; counters show how many requests
    of each session wait, and instants the drops.

    Args:
        log: A recorded simulation.
        names: Of the sessions.
    """
    entries = log.entries
    events = [*_rows(entries), *_batches(entries, names), *_queues(entries, names)]
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _rows(entries: np.ndarray) -> Iterator[dict[str, Any]]:
    """Name the two groups and the row of each accelerator."""
    yield {"name": "process_name", "ph": "M", "pid": 0, "args": {"name": "accelerators"}}
    yield {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "sessions"}}
    used = entries["accelerator"][entries["kind"] == SEND]
    for accelerator in np.unique(used).tolist():
        name = {"name": f"accelerator {accelerator}"}
        yield {"name": "thread_name", "ph": "M", "pid": 0, "tid": accelerator, "args": name}


def _batches(entries: np.ndarray, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """One slice per batch, over its execution."""
    for entry in entries[entries["kind"] == SEND]:
        started, ended = float(entry["started"]), float(entry["ended"])
        yield {
            "name": f"{names[entry['session']]} x{entry['count']}",
            "cat": "batch",
            "ph": "X",
            "pid": 0,
            "tid": int(entry["accelerator"]),
            "ts": started * 1e6,
            "dur": (ended - started) * 1e6,
            "args": {
                "session": names[entry["session"]],
                "requests": int(entry["count"]),
                "first_request": int(entry["number"]),
                "sent_ms": float(entry["time"]) * 1e3,
            },
        }


def _queues(entries: np.ndarray, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """One counter per session, and an instant for every drop."""
    waiting = [0] * len(names)
    for entry in entries[np.isin(entries["kind"], (ARRIVE, SEND, REFUSE))]:
        session, time = int(entry["session"]), float(entry["time"]) * 1e6
        waiting[session] += 1 if entry["kind"] == ARRIVE else -int(entry["count"])
        yield {
            "name": f"waiting {names[session]}",
            "ph": "C",
            "pid": 1,
            "ts": time,
            "args": {"requests": waiting[session]},
        }
        if entry["kind"] == REFUSE:
            label = f"{names[session]} drops {entry['count']}"
            yield {"name": label, "cat": "drop", "ph": "i", "pid": 1, "tid": session, "ts": time, "s": "p"}

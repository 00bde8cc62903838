"""What happened at a dispatcher between two readings of its state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.adapters.traffic import ServerState, SessionTraffic, Traffic

__all__ = ["traffic_between"]


def traffic_between(before: Mapping[str, Any], after: Mapping[str, Any]) -> Traffic | None:
    """Return what happened between two states of a dispatcher; None if it is another process, or older."""
    seconds = float(after["time"]) - float(before["time"])
    if seconds <= 0 or any("arrivals" not in one for one in (*before["sessions"], *after["sessions"])):
        return None
    known = {one["name"]: one for one in before["sessions"]}
    sessions = [_session(known.get(one["name"], {}), one, seconds) for one in after["sessions"]]
    if any(one.rate < 0 for one in sessions):
        return None
    servers = [
        ServerState(address=str(one["address"]), up=bool(one["up"]), reason=str(one["reason"]))
        for one in after["backends"]
    ]
    ended = float(after["time"])
    return Traffic(ended=ended, seconds=seconds, sessions=tuple(sessions), servers=tuple(servers))


def _session(before: Mapping[str, Any], after: Mapping[str, Any], seconds: float) -> SessionTraffic:
    more = {
        name: int(after[name]) - int(before.get(name, 0))
        for name in ("arrivals", "in_time", "late", "batches", "items")
    }
    dropped, sizes = (_grown(before.get(name, {}), after[name]) for name in ("dropped", "sizes"))
    return SessionTraffic(
        name=str(after["name"]),
        rate=more["arrivals"] / seconds,
        in_time=more["in_time"] / seconds,
        late=more["late"] / seconds,
        dropped={reason: count / seconds for reason, count in dropped.items()},
        mean_batch=more["items"] / more["batches"] if more["batches"] else None,
        waiting=int(after["waiting"]),
        sizes={int(size): count for size, count in sizes.items()},
    )


def _grown(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, int]:
    """Return by how much each count has grown, of those that have."""
    grown = {str(name): int(count) - int(before.get(name, 0)) for name, count in after.items()}
    return {name: count for name, count in grown.items() if count > 0}

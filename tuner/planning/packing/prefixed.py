"""Sessions whose models share a prefix, as one load (Nexus, sections 5 and 6.3).

The prefix is executed once for a batch of requests of all these sessions; the suffixes follow one after the
other, each with the requests of its own session. The sessions must have one SLO, as they share each batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import numpy as np

from tuner.planning.packing.load import SessionLoad
from tuner.rounding import ROUNDING

__all__ = ["asked_for", "prefix_load"]


class Asked(Protocol):
    """What requests come for."""

    @property
    def rate(self) -> float:
        """Requests/s."""


S = TypeVar("S", bound=Asked)


def asked_for(sessions: Sequence[S]) -> list[S]:
    """Return the sessions that requests come for; all if they come for none."""
    return [one for one in sessions if one.rate > 0] or list(sessions)


def prefix_load(
    name: str, latency: np.ndarray, suffixes: Sequence[SessionLoad], *, memory: float = 0.0
) -> SessionLoad:
    """Return the load of sessions that share a prefix.

    Each session has the share of a batch that it has of the rate, rounded up; those without requests are
    left out, unless none has any. A batch of fewer requests than there are sessions has as many suffixes as
    requests, at worst those that take longest.

    Args:
        name: Of the load.
        latency: Of the prefix, by batch size.   # (B+1,) s; latency[0] unused
        suffixes: The sessions, each with the latency and the memory of its suffix.
        memory: Of the prefix, bytes.
    """
    suffixes = asked_for(suffixes)
    rate = sum(one.rate for one in suffixes)
    budget = min(one.budget for one in suffixes)
    sizes = np.arange(1, len(latency))
    times = np.empty((len(suffixes), sizes.size))  # s, of each suffix in a batch of each size
    for times_of, one in zip(times, suffixes, strict=True):
        share = one.rate / rate if rate else 1 / len(suffixes)
        own = np.maximum(np.ceil(sizes * share - ROUNDING).astype(np.int64), 1)
        known = own < len(one.latency)
        times_of[:] = np.where(known, one.latency[np.where(known, own, 1)], np.inf)
    longest = np.cumsum(-np.sort(-times, axis=0), axis=0)  # row k: the k + 1 that take longest
    total = latency[1:] + longest[np.minimum(sizes, len(suffixes)) - 1, sizes - 1]
    useful = max(int(np.count_nonzero(total <= budget)), 1)
    return SessionLoad(
        name=name,
        latency=np.concatenate(([0.0], total[:useful])),
        budget=budget,
        rate=rate,
        memory=memory + sum(one.memory for one in suffixes),
    )

"""The batch-oblivious baseline of Nexus (section 7.2): shares of the cluster, whoever is beside whom.

Each session gets a share in proportion to its rate, and inversely to the throughput of an accelerator of its
own; the shares fill one accelerator after the other. Every session runs the batches that it would run alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from tuner.planning.packing.load import SessionLoad
from tuner.rounding import ROUNDING

__all__ = ["oblivious_rows"]


def oblivious_rows(
    loads: Sequence[SessionLoad], rates: Sequence[float], count: int
) -> list[list[tuple[int, int, float]]]:
    """Return (load, batch, requests/s) on each of ``count`` accelerators."""
    needs = [rate / load.peak if load.peak else 0.0 for load, rate in zip(loads, rates, strict=True)]
    total = sum(needs)
    rows: list[list[tuple[int, int, float]]] = [[] for _ in range(count)]
    at, room = 0, 1.0
    for index, (load, rate, need) in enumerate(zip(loads, rates, needs, strict=True)):
        left = need * count / total if total else 0.0
        share = left
        while left > ROUNDING and at < count:
            part = min(left, room)
            rows[at].append((index, load.batch, rate * part / share))
            left, room = left - part, room - part
            if room <= ROUNDING:
                at, room = at + 1, 1.0
    return rows

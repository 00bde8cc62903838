"""What the cluster engine counts: per session answers, latencies and batches, per accelerator its busy time.

Which requests count is decided by their arrival: those that arrive in ``[arrivals_from, arrivals_until)``,
whenever they are answered. They are counted when their batch is sent, for then their answer is known.
Busy time counts as far as it lies in ``[busy_from, busy_until)``.

Latencies go into logarithmic bins, 128 to each doubling, so that a bin is at most 1/128 (0.8 %) wide
relative to its latency, from 1 us to over an hour, in fixed memory. The bin's number is in the bits of the
floating-point number (exponent and the first 7 binary digits), so that finding it takes two instructions.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from tuner._jit import njit_inline
from tuner.scheduling.vocabulary import Cluster, records

__all__ = [
    "BINS",
    "Totals",
    "clear",
    "count_batch",
    "count_drop",
    "edges",
    "latency_bin",
    "make_totals",
    "median",
    "quantile",
]

SLACK = 1e-9
"""s by which an answer may miss its deadline through rounding and still be good."""
DIGITS = 7
"""Binary digits of the latency that choose the bin, besides the exponent: 128 bins to a doubling."""
LOWEST = -20
"""The first bin begins at 2**LOWEST s, about 1 us; what is shorter falls into it."""
DOUBLINGS = 32
BINS = (DOUBLINGS << DIGITS) + 8
"""The last bin takes all that is longer. An odd number of cache lines, so that sessions do not collide."""

_SHIFT = 52 - DIGITS  # of the 64 bits of a float, 52 are digits
_FIRST = (1023 + LOWEST) << DIGITS  # exponents are stored plus 1023

INTERVAL = np.dtype(
    [
        ("arrivals_from", "f8"),  # s, requests that arrive from then on count
        ("arrivals_until", "f8"),  # s, requests that arrive before then count
        ("busy_from", "f8"),  # s, execution counts from then on
        ("busy_until", "f8"),  # s
    ],
    align=True,
)
TALLY = np.dtype(
    [
        ("good", "i8"),  # requests answered within the slo
        ("late", "i8"),  # requests answered after it
        ("dropped", "i8"),  # requests refused
        ("latency", "f8"),  # s from arrival to answer, summed over the answered requests
        ("queueing", "f8"),  # s from arrival to the start of the execution, summed over them
        ("longest", "f8"),  # s, the largest such wait
    ],
    align=True,
)
USE = np.dtype(
    [
        ("busy", "f8"),  # s spent executing
        ("batches", "i8"),
    ],
    align=True,
)


class Totals(NamedTuple):
    """Counts since the last :func:`clear`; all arrays are modified in place."""

    interval: np.ndarray  # (1,) INTERVAL
    sessions: np.ndarray  # (M,) TALLY
    latencies: np.ndarray  # (M, BINS) answered requests per bin of latency
    batches: np.ndarray  # (M, B+1) batches per size
    served: np.ndarray  # (M, K) answered requests per kind of accelerator
    accelerators: np.ndarray  # (N,) USE


def make_totals(cluster: Cluster) -> Totals:
    """Return empty counts for a cluster; everything counts, from time 0 on."""
    sessions = cluster.sessions.size
    totals = Totals(
        interval=records(1, INTERVAL),
        sessions=records(sessions, TALLY),
        latencies=np.zeros((sessions, BINS), np.int64),
        batches=np.zeros((sessions, cluster.latency.shape[2]), np.int64),
        served=np.zeros((sessions, cluster.latency.shape[0]), np.int64),
        accelerators=records(cluster.accelerators.size, USE),
    )
    totals.interval[0] = (0.0, np.inf, 0.0, np.inf)
    return totals


def clear(totals: Totals) -> None:
    """Set all counts to 0; the interval stays. ``totals`` is modified in place."""
    for counts in totals[1:]:
        counts[...] = np.zeros((), counts.dtype)


@njit_inline
def latency_bin(latency: float) -> int:
    """Return the bin of a latency in s."""
    place = int((np.float64(latency).view(np.int64) >> _SHIFT) - _FIRST)
    return min(max(place, 0), BINS - 1)


@njit_inline
def count_batch(  # noqa: PLR0917 - a kernel has no keywords
    cluster: Cluster, totals: Totals, command: int, start: float, end: float, answer: float
) -> None:
    """Count a batch and its requests.

    Args:
        cluster: The policy's; has the command.
        totals: Modified in place.
        command: Index of the DISPATCH among the commands.
        start: When the execution begins, s.
        end: When it ends, s.
        answer: When the clients have their answers, s.
    """
    queue = cluster.commands[command].queue
    session = cluster.commands[command].session
    first = cluster.commands[command].first
    count = cluster.commands[command].count
    accelerator = cluster.commands[command].accelerator
    arrivals_from = totals.interval[0].arrivals_from
    arrivals_until = totals.interval[0].arrivals_until
    mask = cluster.waiting.shape[1] - 1
    latest = cluster.sessions[session].slo + SLACK
    counted, late, summed, longest = 0, 0, 0.0, 0.0
    for position in range(first, first + count):
        arrival = cluster.waiting[queue, position & mask].arrival
        if arrivals_from <= arrival < arrivals_until:
            latency = answer - arrival
            totals.latencies[session, latency_bin(latency)] += 1
            counted += 1
            late += latency > latest
            summed += latency
            longest = max(longest, latency)
    if counted:
        totals.sessions[session].good += counted - late
        totals.sessions[session].late += late
        totals.sessions[session].latency += summed
        totals.sessions[session].queueing += summed - counted * (answer - start)
        waited = longest - (answer - start)
        totals.sessions[session].longest = max(totals.sessions[session].longest, waited)
        totals.batches[session, cluster.commands[command].items] += 1
        totals.served[session, cluster.accelerators[accelerator].kind] += counted
    begun = max(start, totals.interval[0].busy_from)
    ended = min(end, totals.interval[0].busy_until)
    if ended > begun:
        totals.accelerators[accelerator].busy += ended - begun
        totals.accelerators[accelerator].batches += 1


@njit_inline
def count_drop(cluster: Cluster, totals: Totals, command: int) -> None:
    """Count the requests of the DROP at that index of the commands. ``totals`` is modified in place."""
    queue = cluster.commands[command].queue
    session = cluster.commands[command].session
    first = cluster.commands[command].first
    mask = cluster.waiting.shape[1] - 1
    for position in range(first, first + cluster.commands[command].count):
        arrival = cluster.waiting[queue, position & mask].arrival
        if totals.interval[0].arrivals_from <= arrival < totals.interval[0].arrivals_until:
            totals.sessions[session].dropped += 1


@cache
def edges() -> np.ndarray:
    """Return where the bins of latency begin, and where the last one ends; read only.   # (BINS+1,) s."""
    bins = np.arange(BINS + 1)
    digits = (bins & ((1 << DIGITS) - 1)) / (1 << DIGITS)
    found = np.asarray(np.ldexp(1 + digits, LOWEST + (bins >> DIGITS)))
    found.flags.writeable = False
    return found


def quantile(latencies: np.ndarray, share: float) -> float:
    """Return the latency that a share of the requests stays within, s; NaN if there are none.

    Args:
        latencies: Requests per bin.   # (BINS,)
        share: In [0, 1]. Inside a bin the requests are taken to be spread evenly.
    """
    below = np.concatenate(([0], np.cumsum(latencies)))  # (BINS+1,)
    if below[-1] == 0:
        return float("nan")
    rank = share * below[-1]
    place = int(np.searchsorted(below[1:], rank, side="left"))
    if latencies[place] == 0:  # share 0 below the first bin in use
        place = int(np.flatnonzero(latencies)[0])
    inside = (rank - below[place]) / latencies[place]
    low, high = edges()[place : place + 2]
    return float(low + inside * (high - low))


def median(counts: np.ndarray) -> float:
    """Return the median of whole numbers, given how often each occurs; NaN if none does.   # (n,)."""
    total = int(counts.sum())
    if total == 0:
        return float("nan")
    below = np.cumsum(counts)
    lower, upper = np.searchsorted(below, [(total - 1) // 2, total // 2], side="right")
    return float(lower + upper) / 2

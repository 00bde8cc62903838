"""The upper bound of the throughput of every pool of instances (Kairos, section 5.2, eq. 9-15).

A pool says how many instances of each type are rented. The bound assumes that requests come exactly when an
instance is free, so that only the work itself and the SLO limit the throughput. A request has a size in
items (the paper calls it a query, and the SLO its QoS target). The symbols:

========== ============================================================================================
``T_slo``  the SLO, in the paper ``T_qos``
base       a type that meets ``T_slo`` at the largest size that comes; every pool needs one instance of it
auxiliary  a type that does not, but is of use for smaller requests
``s``      cut-off of an auxiliary type: the largest size up to which it meets ``T_slo``
``f``      share of the requests of at most ``s`` items
``u``,``v`` how many base instances, and of an auxiliary type, the pool has
``Q_b``    requests/s that one base instance serves alone, of all sizes: 1 / E[latency]
``Q_b^s+`` requests/s that one base instance serves of those larger than ``s`` only
``Q_a``    requests/s that one auxiliary instance serves of those of at most ``s`` items
``f'``     largest ``f`` of the auxiliary types in the pool; ``s`` in ``Q_b^s+`` and ``Q_a`` goes with it
``C``      large requests/s that come with the small ones which keep all auxiliary instances busy (eq. 14)
========== ============================================================================================

If the base cannot serve ``C``, it is the bottleneck: u Q_b^s+ / (1 - f'). If it can, the auxiliary instances
are busy and the base serves requests of all sizes with the time it has left:
sum(v Q_a) / f' + (1 - C / (u Q_b^s+)) u Q_b. With one auxiliary type this is eq. 12 and 13, with one instance
of each eq. 9 and 11; without auxiliary instances it is u Q_b.

Like in the paper, weaker auxiliary types are credited with the cut-off of the strongest one in the pool, and
the auxiliary instances take small requests of all sizes alike. A distribution policy that gives them the very
smallest could serve a little more than eq. 15 (the paper's oracle does, Fig. 14); `ceiling.py` has a limit
that holds for every policy.

Where we go further: several types may meet ``T_slo`` at the largest size. All of them are base types then,
and ``u Q_b`` stands for the sum over them. A type that meets ``T_slo`` at no size that comes counts for
nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["Terms", "auxiliary_limited", "bounds", "make_terms"]

CHUNK = 1 << 16
"""Pools at a time, so that a million take little memory."""


class Terms(NamedTuple):
    """What the bound needs to know of T instance types. The last index is the type whose cut-off is used."""

    base: np.ndarray  # (T,) bool
    cutoff: np.ndarray  # (T,) items; s; the largest size that comes for a base type, 0 if useless
    share: np.ndarray  # (T,) f
    base_rate: np.ndarray  # (T,) 1/s; Q_b; 0 for auxiliary types
    large_rate: np.ndarray  # (T, T) 1/s; Q_b^s+ of a base type; 0 for auxiliary types
    small_rate: np.ndarray  # (T, T) 1/s; Q_a of an auxiliary type; 0 for base types and useless ones


def make_terms(latency: np.ndarray, slo: float, probability: np.ndarray) -> Terms:
    """Return the terms of the bound for one model.

    Args:
        latency: Execution time by type and items, never falling.   # (T, S+1) s
        slo: s.
        probability: Of a request that must be served, by size.   # (S+1,); [0] is 0
    """
    sizes = np.arange(probability.size)
    largest = int(np.flatnonzero(probability)[-1])
    kept = (latency <= slo) & (sizes >= 1)
    cutoff = np.minimum((kept * sizes).max(axis=1), largest)  # (T,)
    share = np.concatenate(([0.0], np.cumsum(probability[1:])))[cutoff]  # (T,)
    base = cutoff == largest
    share[base] = 1.0
    useful = ~base & (share > 0)
    cutoff[~base & ~useful] = 0
    small = sizes[:, None] <= cutoff  # (S+1, T)
    busy_small = (latency * probability) @ small  # (T, T) s of work per request, of the small ones
    busy_large = (latency * probability) @ ~small  # (T, T) s
    with np.errstate(divide="ignore", invalid="ignore"):  # a cut-off that nothing or everything is below
        large_rate = np.where(base[:, None] & ~base, (1 - share) / busy_large, 0.0)
        small_rate = np.where(useful[:, None] & useful, share / busy_small, 0.0)
    base_rate = np.where(base, 1 / (latency @ probability), 0.0)
    return Terms(base, cutoff, share, base_rate, large_rate, small_rate)


def bounds(pools: np.ndarray, terms: Terms) -> np.ndarray:
    """Return the upper bound of the throughput of each pool, eq. 15.

    Args:
        pools: Instances of each type.   # (n, T)
        terms: Of :func:`make_terms`.

    Returns:
        Requests/s.   # (n,)
    """
    found = np.empty(len(pools))
    for start in range(0, len(pools), CHUNK):
        found[start : start + CHUNK] = _parts(pools[start : start + CHUNK], terms)[0]
    return found


def auxiliary_limited(pools: np.ndarray, terms: Terms) -> np.ndarray:
    """Return for each pool whether its auxiliary instances limit it: the second case of eq. 15."""
    return _parts(pools, terms)[1]


def _parts(pools: np.ndarray, terms: Terms) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds, and whether the auxiliary instances limit them."""
    counts = np.asarray(pools, dtype=float)
    base_rate = counts @ terms.base_rate  # (n,) u Q_b
    useful = np.flatnonzero(~terms.base & (terms.share > 0))
    if useful.size == 0:
        return base_rate, np.zeros(len(pools), dtype=bool)
    strongest_first = useful[np.argsort(-terms.share[useful], kind="stable")]
    present = pools[:, strongest_first] > 0
    rows, widest = np.arange(len(pools)), strongest_first[present.argmax(axis=1)]  # (n,) whose f is f'
    large = (counts @ terms.large_rate)[rows, widest]  # (n,) u Q_b^s+
    small = (counts @ terms.small_rate)[rows, widest]  # (n,) sum of v Q_a
    share = terms.share[widest]  # (n,) f'
    needed = small * (1 - share) / share  # (n,) C, eq. 14
    with np.errstate(divide="ignore", invalid="ignore"):  # pools without a base instance: the first case
        slack = small / share + (1 - needed / large) * base_rate
    mixed = present.any(axis=1)
    spare = mixed & (large > needed)
    bound = np.where(spare, slack, np.where(mixed, large / (1 - share), base_rate))  # eq. 15
    return bound, spare

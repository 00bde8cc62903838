"""The compiled step of :mod:`~.balance`."""

from __future__ import annotations

import numpy as np

from tuner._jit import njit
from tuner.planning.packing.kernel import choose_cycle
from tuner.planning.packing.load import LoadArrays
from tuner.rounding import ROUNDING

__all__ = ["room_for", "with_bursts"]

GROWTH = 1.5
"""The second factor tried is this much higher or lower."""
HALVINGS = 8
"""Of the interval in which the highest factor lies."""
LEAST, MOST = 1e-6, 1e6
"""Factors beyond which none is looked for."""


@njit
def with_bursts(
    loads: LoadArrays, cost: np.ndarray, members: np.ndarray, rates: np.ndarray, sigmas: float
) -> np.ndarray:
    """Return the rates with the bursts of a node shared among its members, requests/s.   # (m,).

    A member's batch is of what came in about half of its budget. The work of all members together in such a
    time varies as that of independent Poisson arrivals does.

    Args:
        loads: Their rates are not read.
        cost: Time that a request of each load takes of an accelerator, s.   # (n,)
        members: The loads on the node.   # (m,)
        rates: Of each, requests/s.   # (m,)
        sigmas: Standard deviations that there is to be room for.
    """
    variance = 0.0  # of the work that comes in a second, s^2
    for own in range(members.size):
        variance += cost[members[own]] ** 2 * rates[own]
    found = np.empty(members.size)
    for own in range(members.size):
        load = members[own]
        time = loads.budget[load] / 2
        found[own] = rates[own] * (1 + sigmas * cost[load] / np.sqrt(variance * time))
    return found


@njit
def room_for(
    loads: LoadArrays, cost: np.ndarray, members: np.ndarray, rates: np.ndarray, sigmas: float
) -> float:
    """Return the highest factor of its rates that a node serves with their bursts; 0 if there is none.

    Args:
        loads: Their rates are not read.
        cost: Time that a request of each load takes of an accelerator, s.   # (n,)
        members: The loads on the node.   # (m,)
        rates: Rate of each member, requests/s.   # (m,)
        sigmas: Standard deviations of the requests in a burst that there is to be room for.
    """
    low, high = 0.0, np.inf
    factor = 1.0
    while low == 0.0 or high == np.inf:
        if _serves(loads, cost, members, factor * rates, sigmas):
            low = factor
            factor *= GROWTH
        else:
            high = factor
            factor /= GROWTH
        if not LEAST < factor < MOST:
            return low
    for _ in range(HALVINGS):
        factor = np.sqrt(low * high)
        if _serves(loads, cost, members, factor * rates, sigmas):
            low = factor
        else:
            high = factor
    return low


@njit
def _serves(
    loads: LoadArrays, cost: np.ndarray, members: np.ndarray, rates: np.ndarray, sigmas: float
) -> bool:
    _, part = choose_cycle(loads, members, with_bursts(loads, cost, members, rates, sigmas))
    return bool(part <= 1 + ROUNDING)

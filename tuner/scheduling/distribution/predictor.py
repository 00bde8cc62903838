"""Predicts how long requests take, from those that ended, without prior knowledge (Kairos, section 5.1).

Per kind of instance and session, a line through all measured times (least squares) predicts the time of a
request from its size. A table with ten items to a cell corrects the line where requests were measured: by
half of the error after the first, by n/(n+1) of the mean error after the n-th, and fully from the fifth on.
So the line soon matters only where nothing was measured. While all sizes are equal the line goes through the
origin. Before the first request the time is unknown and assumed to be 0, so that every kind is tried.

The error of the predictions is learned, too: the spread is its standard deviation relative to the time, of
requests from cells that are known. The error compares the time with the prediction when the request was sent.

Means forget: a cell remembers about a hundred requests, a line about a thousand, so that predictions follow
hardware that changes.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from tuner._jit import njit_flat, njit_inline
from tuner.scheduling.distribution.pool import Pooled
from tuner.scheduling.vocabulary import records

__all__ = ["Learning", "Predictor", "believed", "learn", "learn_last", "make_predictor", "predict", "spread"]

CELL_ITEMS = 10
"""Items to a cell of the table, as in the paper's code."""
CELL_MEMORY, LINE_MEMORY = 100, 1000
"""Requests that the means remember, about."""
KNOWN = 5
"""Requests of a cell that make it known."""

LINE = np.dtype(
    [
        ("seen", "f8"),  # requests, up to LINE_MEMORY
        ("items", "f8"),  # mean
        ("seconds", "f8"),  # mean, s
        ("spread", "f8"),  # variance of the items
        ("together", "f8"),  # covariance of items and seconds, s
        ("slope", "f8"),  # s per item
        ("judged", "f8"),  # requests whose prediction was compared with what came, up to LINE_MEMORY
        ("error", "f8"),  # mean squared error of those predictions, relative to the time
    ],
    align=True,
)
CELL = np.dtype(
    [
        ("seen", "f8"),  # requests, up to CELL_MEMORY
        ("items", "f8"),  # mean
        ("seconds", "f8"),  # mean, s
    ],
    align=True,
)


class Predictor(NamedTuple):
    """What was learned; both arrays are modified in place."""

    lines: np.ndarray  # (K, M) LINE, per kind of instance and session
    cells: np.ndarray  # (K, M, S) CELL, of 1-10 items, 11-20, and so on


class Learning(Pooled, Protocol):
    """The state of a policy that may learn execution times, or may believe the profile."""

    @property
    def predictor(self) -> Predictor:
        """What was learned."""

    @property
    def rule(self) -> np.ndarray:
        """(1,) records with a field ``learns``, 0 or 1."""


def make_predictor(kinds: int, sessions: int, largest: int) -> Predictor:
    """Return a predictor that knows nothing, for requests of at most ``largest`` items."""
    cells = -(-largest // CELL_ITEMS)
    return Predictor(records((kinds, sessions), LINE), records((kinds, sessions, cells), CELL))


@njit_inline
def predict(predictor: Predictor, kind: int, session: int, items: int) -> float:
    """Return how long a request will take, s; 0 if no request of the session ended on the kind yet."""
    lines, cells = predictor.lines, predictor.cells
    slope = lines[kind, session].slope
    start = lines[kind, session].seconds - slope * lines[kind, session].items
    cell = (items - 1) // CELL_ITEMS
    seen = cells[kind, session, cell].seen
    missed = cells[kind, session, cell].seconds - start - slope * cells[kind, session, cell].items
    trust = seen / (seen + 1) if seen < KNOWN else 1.0
    return float(max(start + slope * items + missed * trust, 0.0))


@njit_flat
def learn(  # noqa: PLR0917 - a kernel has no keywords
    predictor: Predictor, kind: int, session: int, items: int, seconds: float, believed: float
) -> None:
    """Note how long a request took, and how long it was believed to take, s. Modifies ``predictor``."""
    lines, cells = predictor.lines, predictor.cells
    cell = (items - 1) // CELL_ITEMS
    if cells[kind, session, cell].seen >= KNOWN and seconds > 0:
        off = believed / seconds - 1
        judged = min(lines[kind, session].judged + 1, LINE_MEMORY)
        lines[kind, session].judged = judged
        lines[kind, session].error += (off * off - lines[kind, session].error) / judged
    seen = min(lines[kind, session].seen + 1, LINE_MEMORY)
    more, longer = items - lines[kind, session].items, seconds - lines[kind, session].seconds
    lines[kind, session].seen = seen
    lines[kind, session].items += more / seen
    lines[kind, session].seconds += longer / seen
    kept = 1 - 1 / seen
    lines[kind, session].spread = kept * (lines[kind, session].spread + more * more / seen)
    lines[kind, session].together = kept * (lines[kind, session].together + more * longer / seen)
    if lines[kind, session].spread > 0:
        slope = lines[kind, session].together / lines[kind, session].spread
        lines[kind, session].slope = max(slope, 0.0)  # a larger request is never expected to be faster
    else:
        lines[kind, session].slope = lines[kind, session].seconds / lines[kind, session].items
    seen = min(cells[kind, session, cell].seen + 1, CELL_MEMORY)
    cells[kind, session, cell].seen = seen
    cells[kind, session, cell].items += (items - cells[kind, session, cell].items) / seen
    cells[kind, session, cell].seconds += (seconds - cells[kind, session, cell].seconds) / seen


@njit_inline
def spread(predictor: Predictor, kind: int, session: int) -> float:
    """Return the standard deviation of the error of predictions, relative to the time."""
    return float(np.sqrt(predictor.lines[kind, session].error))


@njit_inline
def believed(policy: Learning, kind: int, session: int, items: int) -> float:
    """Return how long a policy takes a request to execute, s."""
    if policy.rule[0].learns:
        return predict(policy.predictor, kind, session, items)
    return float(policy.cluster.latency[kind, session, items])


@njit_inline
def learn_last(policy: Learning, accelerator: int, took: float) -> bool:
    """Learn from the request that an accelerator has just executed, if it is known and the policy learns.

    Returns:
        Whether it was learned from.
    """
    learns = policy.rule[0].learns and not policy.cluster.board[0].void
    if learns and policy.pool.running[accelerator].items:
        last, kind = policy.pool.running[accelerator], policy.cluster.accelerators[accelerator].kind
        learn(policy.predictor, kind, last.session, last.items, took, last.length)
        return True
    return False

"""The least-cost matching of rows with columns (Jonker and Volgenant, Computing 38, 1987), compiled.

``scipy.optimize.linear_sum_assignment`` solves the same problem, but cannot be called from compiled code, and
the policy ``kairos`` solves one at every decision. The matrix may be wider than high; every row gets a column
of its own. Three steps of the paper:

* *Column reduction*, if the matrix is square: each column's price begins at its least cost. In a wider matrix
  some columns stay free, and their price must be 0.
* *Augmenting row reduction*: each row in turn takes its cheapest column, whose price falls until the row
  would take its second cheapest just as well; the column's former row is free again. A few rounds match most
  rows.
* *Augmentation*: for each row that is left, a shortest path of alternating steps to a free column, by
  Dijkstra's algorithm.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tuner._jit import njit_flat

__all__ = ["Matching", "make_matching", "match"]

ROUNDS = 2
"""Of augmenting row reduction, as in the paper."""
PATIENCE = 4
"""Steps of a round, per row; equal costs could let two rows chase each other in steps of a rounding error."""


class Matching(NamedTuple):
    """A problem, its solution, and room to work in; all arrays are modified in place.

    The upper left corner of ``cost`` is the problem.
    """

    cost: np.ndarray  # (R, C)
    mate: np.ndarray  # (R,) the column of each row
    owner: np.ndarray  # (C,) the row of each column, -1 if free
    price: np.ndarray  # (C,) what is taken off the costs of a column
    distance: np.ndarray  # (C,) length of the shortest path found to a column
    before: np.ndarray  # (C,) the row before a column on that path
    order: np.ndarray  # (C,) columns: done, then at the least distance, then the others
    free: np.ndarray  # (R,) rows without a column


def make_matching(rows: int, columns: int) -> Matching:
    """Return room for problems of at most these numbers of rows and columns."""
    assert 1 <= rows <= columns, f"`1 <= rows <= columns` must hold, but got {rows=}, {columns=}"
    return Matching(
        cost=np.zeros((rows, columns)),
        mate=np.zeros(rows, np.int64),
        owner=np.zeros(columns, np.int64),
        price=np.zeros(columns),
        distance=np.zeros(columns),
        before=np.zeros(columns, np.int64),
        order=np.zeros(columns, np.int64),
        free=np.zeros(rows, np.int64),
    )


@njit_flat
def match(work: Matching, rows: int, columns: int) -> None:
    """Give every row a column so that the costs add up to the least.

    Args:
        work: The costs, finite; gets the columns in ``mate[:rows]``. Modified in place.
        rows: How many, at least 1.
        columns: How many, no fewer than rows.
    """
    for column in range(columns):
        work.owner[column] = -1
        work.price[column] = work.cost[0, column] if rows == columns else 0.0
    for row in range(rows):
        work.free[row] = row
        if rows == columns:
            for column in range(columns):
                work.price[column] = min(work.price[column], work.cost[row, column])
    left = rows
    for _ in range(ROUNDS):
        left = _reduce(work, left, rows, columns)
    for index in range(left):
        _augment(work, work.free[index], columns)


@njit_flat
def _reduce(work: Matching, left: int, rows: int, columns: int) -> int:
    """One round of augmenting row reduction over the ``left`` free rows; return how many are free then."""
    index, kept, steps = 0, 0, 0
    while index < left:
        row = work.free[index]
        index += 1
        steps += 1
        least, second = np.inf, np.inf
        column, other = -1, -1
        for j in range(columns):
            cost = work.cost[row, j] - work.price[j]
            if cost < least:
                second, other = least, column
                least, column = cost, j
            elif cost < second:
                second, other = cost, j
        fallen = work.price[column] - (second - least)
        falls = fallen < work.price[column]
        if falls:
            work.price[column] = fallen
        elif work.owner[column] >= 0:
            column = other
        loser = work.owner[column]
        work.owner[column] = row
        work.mate[row] = column
        if loser >= 0:
            if falls and steps < PATIENCE * rows:
                index -= 1
                work.free[index] = loser
            else:
                work.free[kept] = loser
                kept += 1
    return kept


@njit_flat
def _augment(work: Matching, start: int, columns: int) -> None:
    """Give a free row a column; the rows on the shortest path to a free column each take the next one."""
    for column in range(columns):
        work.distance[column] = work.cost[start, column] - work.price[column]
        work.before[column] = start
        work.order[column] = column
    done, near, sink = 0, 0, -1  # order[:done] are done, order[done:near] at the least distance
    least = 0.0
    settled = 0
    while sink < 0:
        if done == near:
            settled = done
            near, least, sink = _nearest(work, done, columns)
        else:
            done += 1
            near, sink = _relax(work, work.order[done - 1], near, columns, least)
    for index in range(settled):
        column = work.order[index]
        work.price[column] += work.distance[column] - least
    row = -1
    while row != start:
        row = work.before[sink]
        work.owner[sink] = row
        work.mate[row], sink = sink, work.mate[row]


@njit_flat
def _nearest(work: Matching, done: int, columns: int) -> tuple[int, float, int]:
    """Bring the columns at the least distance to the front of the open ones.

    Returns:
        Where they end in ``order``; the distance; a free one among them, or -1.
    """
    least, near = np.inf, done
    for index in range(done, columns):
        column = work.order[index]
        distance = work.distance[column]
        if distance <= least:
            if distance < least:
                least, near = distance, done
            work.order[index] = work.order[near]
            work.order[near] = column
            near += 1
    for index in range(done, near):
        if work.owner[work.order[index]] < 0:
            return near, least, work.order[index]
    return near, least, -1


@njit_flat
def _relax(work: Matching, column: int, near: int, columns: int, least: float) -> tuple[int, int]:
    """Look at the paths through a column and its row to the open columns.

    Returns:
        Where the columns at the least distance end in ``order``; a free one among them, or -1.
    """
    row = work.owner[column]
    base = work.cost[row, column] - work.price[column] - least
    for index in range(near, columns):
        other = work.order[index]
        distance = work.cost[row, other] - work.price[other] - base
        if distance < work.distance[other]:
            work.distance[other] = distance
            work.before[other] = row
            if distance == least:
                if work.owner[other] < 0:
                    return near, other
                work.order[index] = work.order[near]
                work.order[near] = other
                near += 1
    return near, -1

"""The compiled matching against scipy's and against trying everything."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from tuner.scheduling.distribution.matching import make_matching, match


def solve(cost: np.ndarray) -> np.ndarray:
    """Return the column of each row."""
    work = make_matching(*cost.shape)
    work.cost[...] = cost
    match(work, *cost.shape)
    owners = {column: row for row, column in enumerate(work.mate.tolist())}
    assert work.owner.tolist() == [owners.get(column, -1) for column in range(cost.shape[1])]
    return work.mate


def least(cost: np.ndarray) -> float:
    """Return the least cost by trying everything."""
    rows, columns = cost.shape
    return min(float(cost[range(rows), list(order)].sum()) for order in permutations(range(columns), rows))


@settings(max_examples=150, derandomize=True, deadline=None)
@given(rows=st.integers(1, 4), more=st.integers(0, 2), data=st.data())
def test_no_other_matching_costs_less(rows: int, more: int, data: st.DataObject) -> None:
    """On small cases, with many ties, the matching costs as little as the best of all."""
    values = data.draw(
        st.lists(st.sampled_from([0.0, 1.0, 2.0, 2.5, 70.0]), min_size=rows * (rows + more),
                 max_size=rows * (rows + more))
    )  # fmt: skip
    cost = np.array(values).reshape(rows, rows + more)

    mate = solve(cost)

    assert len(set(mate.tolist())) == rows
    assert cost[np.arange(rows), mate].sum() == pytest.approx(least(cost))


@pytest.mark.parametrize(
    ("rows", "columns"), [(1, 1), (1, 7), (2, 2), (13, 13), (13, 26), (20, 60), (60, 61)]
)
@pytest.mark.parametrize("seed", range(4))
def test_as_scipy(rows: int, columns: int, seed: int) -> None:
    """Random costs, few different costs, products, and requests on instances cost what scipy finds."""
    rng = np.random.default_rng(seed)
    for cost in (
        rng.random((rows, columns)),
        rng.integers(0, 4, (rows, columns)).astype(float),
        np.outer(rng.random(rows), rng.random(columns)),
        np.where(
            rng.random((rows, columns)) < 0.6, 100.0, np.add.outer(rng.random(rows), rng.random(columns))
        ),
    ):
        mate = solve(cost)

        rows_of, columns_of = linear_sum_assignment(cost)
        assert len(set(mate.tolist())) == rows
        found = cost[np.arange(rows), mate].sum()
        assert found == pytest.approx(cost[rows_of, columns_of].sum(), rel=1e-9, abs=1e-12)


def test_only_the_corner_counts() -> None:
    """What lies beyond the problem's rows and columns is not looked at, and room can be used again."""
    work = make_matching(3, 4)
    work.cost[...] = -1e9
    work.cost[:2, :3] = [[1.0, 5.0, 9.0], [1.0, 9.0, 9.0]]

    for _ in range(2):
        match(work, 2, 3)

        assert work.mate[:2].tolist() == [1, 0]


def test_room_must_be_wide() -> None:
    """More rows than columns cannot all be matched."""
    with pytest.raises(AssertionError, match="rows <= columns"):
        make_matching(3, 2)

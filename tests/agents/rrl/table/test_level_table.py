"""What is known at one load level, and how evidence adds up."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tuner.agents.rrl.table.level_table import LevelTable


def test_empty_table_knows_nothing() -> None:
    """Costs are NaN, Q is its optimistic start."""
    table = LevelTable.empty(3, 0.25)

    assert table.known.size == 0
    assert table.least() is None
    assert np.isnan(table.cost).all()
    assert table.q.tolist() == [0.25] * 3


def test_first_evidence_has_rate_one() -> None:
    """Whatever stood there before is replaced, by a measurement and by an estimate."""
    table = LevelTable.empty(3, 0.0)

    shares = table.weigh(np.array([0, 1]), 0, 0.25)

    assert shares.tolist() == [1.0, 1.0]
    assert table.evidence.tolist() == [1.0, 0.25, 0.0]


def test_measurement_outweighs_estimates_before_it() -> None:
    """Ten estimates count no more than one when the first measurement comes."""
    table = LevelTable.empty(2, 0.0)
    for _ in range(10):
        table.weigh(np.array([0, 1]), 1, 0.25)

    share = table.weigh(np.array([0]), 0, 0.25)

    assert share.tolist() == [0.8]


def test_estimates_weigh_less_the_more_was_measured() -> None:
    """They cannot drown measurements."""
    table = LevelTable.empty(2, 0.0)
    table.visits[0] = 3
    table.evidence[0] = 3.0

    share = table.weigh(np.array([0, 1]), 1, 0.25)

    assert share[0] == pytest.approx(0.0625 / 3.0625)


def test_rates_satisfy_the_theorem() -> None:
    """Measured again and again, the shares are 1/t: the sum diverges, that of squares does not."""
    table = LevelTable.empty(1, 0.0)
    shares = []
    for _ in range(1000):
        shares.append(float(table.weigh(np.array([0]), 0, 0.25)[0]))
        table.visits[0] += 1

    assert shares == pytest.approx([1 / t for t in range(1, 1001)])
    assert sum(shares) > math.log(1000)
    assert sum(share**2 for share in shares) < math.pi**2 / 6

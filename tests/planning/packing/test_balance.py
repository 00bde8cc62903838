"""Balanced nodes: no rate is lost, and the least room grows."""

from __future__ import annotations

import numpy as np
import pytest

from tests.planning.packing.naive import rates_with_bursts
from tuner.planning.packing.balance import balance
from tuner.planning.packing.balance_kernel import room_for, with_bursts
from tuner.planning.packing.kernel import choose_cycle, saturate
from tuner.planning.packing.load import LoadArrays, SessionLoad, load_arrays

pytestmark = pytest.mark.kernels


def make_loads(budgets: list[float]) -> LoadArrays:
    """Sessions of one model, 1 ms for each request and 5 ms for a batch."""
    sizes = np.arange(0, 101)
    latency = np.where(sizes > 0, 0.001 * sizes + 0.005, 0.0)
    return load_arrays(
        [SessionLoad(name=str(n), latency=latency, budget=one, rate=1.0) for n, one in enumerate(budgets)]
    )


@pytest.mark.parametrize("seed", range(3))
def test_parts_move_until_all_have_more_room(seed: int) -> None:
    """Every session keeps its rate; the node with the least room has more than before."""
    rng = np.random.default_rng(seed)
    loads = make_loads(rng.uniform(0.03, 0.3, 6).tolist())
    shares = [{0: 200.0, 1: 200.0}, {2: 100.0, 3: 100.0}, {4: 50.0, 5: 20.0}]
    cost = 1 / saturate(loads)[1]
    before = [
        room_for(loads, cost, np.array(list(one)), np.array(list(one.values())), 2.33) for one in shares
    ]

    found = balance(loads, shares)

    assert found is not None
    assert found.room > min(before)
    total = np.zeros(6)
    for node in found.shares:
        for load, rate in node.items():
            total[load] += rate
    assert total == pytest.approx([200, 200, 100, 100, 50, 20])
    assert all(node.occupancy <= 1 + 1e-6 for node in found.nodes)


def test_nodes_that_serve_at_no_rate_are_not_balanced() -> None:
    """Four batches of 6 ms each need longer than the 12 ms in which all must have had their turn."""
    loads = make_loads([0.018] * 4)

    assert balance(loads, [dict.fromkeys(range(4), 1.0)] * 2) is None


def test_the_room_is_the_highest_factor_that_is_served() -> None:
    """With the bursts of that factor, to a hundredth; none is served where a batch of 1 takes too long."""
    loads = make_loads([0.05, 0.1])
    cost = 1 / saturate(loads)[1]
    members, rates = np.array([0, 1]), np.array([100.0, 50.0])

    room = room_for(loads, cost, members, rates, 2.0)

    served = [
        choose_cycle(loads, members, with_bursts(loads, cost, members, factor * rates, 2.0))[1] <= 1
        for factor in (0.999 * room, 1.01 * room)
    ]
    assert served == [True, False]
    assert room_for(make_loads([0.008]), np.array([0.006]), members[:1], rates[:1], 2.0) == 0


def test_bursts_are_as_the_plain_twin_has_them() -> None:
    """Of any members with any rates."""
    rng = np.random.default_rng(4)
    loads = make_loads(rng.uniform(0.03, 0.3, 9).tolist())
    for _ in range(20):
        members = rng.choice(9, 4, replace=False)
        cost, rates = rng.uniform(0.001, 0.1, 9), rng.uniform(1, 500, 4)

        found = with_bursts(loads, cost, members, rates, 2.0)

        assert found == pytest.approx(rates_with_bursts(loads, cost, members, rates, 2.0))

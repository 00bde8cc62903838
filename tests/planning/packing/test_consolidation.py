"""Packings that need fewer accelerators than the greedy one."""

from __future__ import annotations

import numpy as np
import pytest

from tests.planning.packing.builders import line, random_loads
from tests.planning.packing.naive import naive_part
from tuner.experiments.nexus.fig2 import example_loads
from tuner.planning.packing.consolidation import consolidate
from tuner.planning.packing.consolidation_kernel import known_cycles, parts_of_cycles
from tuner.planning.packing.exact import fewest_nodes
from tuner.planning.packing.kernel import choose_cycle
from tuner.planning.packing.load import load_arrays
from tuner.planning.packing.squishy import PackedNode, pack


def _rates(nodes: list[PackedNode]) -> dict[int, float]:
    rates: dict[int, float] = {}
    for node in nodes:
        for load, rate in node.loads:
            rates[load] = rates.get(load, 0.0) + rate
    return rates


@pytest.mark.parametrize("seed", range(4))
def test_every_node_keeps_all_limits(seed: int) -> None:
    """All is served, in time, within the duty cycle and the memory, and never on more than the greedy has."""
    loads = random_loads(np.random.default_rng(seed), 25, most=60.0)

    nodes = consolidate(loads, memory=1200.0)

    assert len(nodes) <= len(pack(loads, memory=1200.0))
    assert _rates(nodes) == pytest.approx({index: load.rate for index, load in enumerate(loads)})
    for node in nodes:
        assert sum(loads[load].memory for load, _ in node.loads) <= 1200.0 + 1e-6
        assert naive_part(loads, list(node.loads), node.cycle) <= 1 + 1e-6


def test_fewer_than_the_greedy_packing_and_none_fewer_than_the_fewest() -> None:
    """Over many instances; the same loads give the same nodes."""
    greedy = consolidated = 0
    for seed in range(10):
        loads = random_loads(np.random.default_rng(seed), 10, most=60.0)
        nodes, before = consolidate(loads), pack(loads)
        fewest = fewest_nodes(loads, before, memory=np.inf)

        assert fewest is not None
        assert len(fewest) <= len(nodes)
        assert nodes == consolidate(loads)
        greedy, consolidated = greedy + len(before), consolidated + len(nodes)

    assert consolidated < greedy


def test_the_example_of_the_paper_stays() -> None:
    """Figure 2 cannot be done with one accelerator; rates of zero need nothing."""
    assert len(consolidate(example_loads({"A": 64.0, "B": 32.0, "C": 32.0}))) == 2
    assert consolidate([line("a", 10.0)], rates=[0.0]) == []


@pytest.mark.parametrize("seed", range(4))
def test_no_duty_cycle_executes_less_than_the_chosen_one(seed: int) -> None:
    """The plain twin tries a thousand."""
    loads = random_loads(np.random.default_rng(seed), 3, most=20.0)
    members = [(index, load.rate) for index, load in enumerate(loads)]
    indices, rates = np.arange(3), np.array([load.rate for load in loads])

    cycle, part = choose_cycle(load_arrays(loads), indices, rates)

    assert part == pytest.approx(naive_part(loads, members, cycle))
    longest = max(load.budget for load in loads)
    tried = [naive_part(loads, members, one) for one in np.linspace(longest / 1000, longest, 1000).tolist()]
    assert min(tried) >= part - 1e-9


@pytest.mark.parametrize("seed", range(4))
def test_the_known_duty_cycles_hold_the_best_one_of_every_residue(seed: int) -> None:
    """Where a batch is full, or where its budget ends the wait for one more: the least part is in one."""
    loads = random_loads(np.random.default_rng(seed), 20, most=60.0)
    arrays, rates = load_arrays(loads), np.array([load.rate for load in loads])

    for index in range(len(loads)):
        residue, rate = np.array([index]), rates[index : index + 1]
        parts = parts_of_cycles(arrays, residue, rate, known_cycles(arrays, residue, rate))

        assert parts.min() == pytest.approx(choose_cycle(arrays, residue, rate)[1])

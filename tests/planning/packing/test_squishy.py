"""Squishy bin packing: the paper's example, the plain twin, and what is proved to be least."""

from __future__ import annotations

import numpy as np
import pytest

from tests.planning.packing.builders import line, random_loads, uneven_loads
from tests.planning.packing.naive import naive_pack
from tuner.experiments.nexus.fig2 import example_loads
from tuner.planning.packing.exact import fewest_nodes
from tuner.planning.packing.load import SessionLoad
from tuner.planning.packing.squishy import pack


def test_figure_2_of_the_paper() -> None:
    """A in batches of 8 each 125 ms, B with 4 beside it; C does not fit."""
    nodes = pack(example_loads({"A": 64.0, "B": 32.0, "C": 32.0}))

    assert [node.loads for node in nodes] == [((0, 64.0), (1, 32.0)), ((2, 32.0),)]
    assert nodes[0].cycle == 0.125
    assert nodes[0].batches == (8, 4)
    assert nodes[0].occupancy == pytest.approx(1.0)


def test_saturated_throughput_of_the_paper() -> None:
    """An accelerator of its own serves 160 requests/s of A, 128 of B and 128 of C."""
    loads = example_loads({"A": 320.0, "B": 256.0, "C": 256.0})

    assert [load.peak for load in loads] == pytest.approx([160.0, 128.0, 128.0])
    nodes = pack(loads)
    assert [node.loads[0][0] for node in nodes] == [0, 0, 1, 1, 2, 2]
    assert {node.batches for node in nodes} == {(16,)}


@pytest.mark.parametrize("seed", range(8))
def test_equals_the_plain_twin(seed: int) -> None:
    """The same sessions share accelerators in the same duty cycles, with and without a memory limit."""
    rng = np.random.default_rng(seed)
    loads = random_loads(rng, 12)
    memory = 900.0 if seed % 2 else np.inf

    nodes = pack(loads, memory=memory)

    twin = naive_pack(loads, memory)
    assert [[load for load, _ in node.loads] for node in nodes] == [[i for i, _ in own] for _, own in twin]
    assert [node.cycle for node in nodes] == pytest.approx([cycle for cycle, _ in twin])


@pytest.mark.parametrize("seed", range(12))
def test_no_accelerator_is_planned_beyond_its_time(seed: int) -> None:
    """Whatever throughput does as batches grow; as in the twin, and with the fewest accelerators."""
    loads = uneven_loads(np.random.default_rng(seed), 8)

    nodes = pack(loads)
    fewest = fewest_nodes(loads, nodes, memory=np.inf)

    assert fewest is not None
    assert [node.cycle for node in nodes] == pytest.approx([cycle for cycle, _ in naive_pack(loads, np.inf)])
    for node in nodes + fewest:
        chosen = [(loads[load], size) for (load, _), size in zip(node.loads, node.batches, strict=True)]
        assert sum(load.latency[size] for load, size in chosen) <= node.cycle * (1 + 1e-9)
        assert all(node.cycle + load.latency[size] <= load.budget + 1e-9 for load, size in chosen)


def test_a_batch_that_is_too_slow_is_not_planned() -> None:
    """97 requests/s in batches of 2, each 21 ms long, would fill 102 % of an accelerator; of 1, 97 %."""
    latency = np.array([0.0, 0.010, 0.021])
    (node,) = pack([SessionLoad(name="a", latency=latency, budget=0.2, rate=97.0)])

    assert node.batches == (1,)
    assert node.occupancy == pytest.approx(0.97)


def test_of_batches_with_one_throughput_the_largest_is_taken() -> None:
    """Up to half of the budget; as a session says itself."""
    load = SessionLoad(name="a", latency=0.01 * np.arange(11), budget=0.1, rate=200.0)

    assert [(node.batches, node.cycle) for node in pack([load])] == [((5,), 0.05)] * 2
    assert load.batch == 5


def test_a_session_that_is_never_in_time_gets_batches_of_one_all_the_time() -> None:
    """60 ms within 100 ms: a request has no time to wait for a cycle of 60 ms, and none is shorter."""
    (node,) = pack([SessionLoad(name="a", latency=np.array([0.0, 0.06]), budget=0.1, rate=1.0)])

    assert (node.cycle, node.batches, node.occupancy) == (0.06, (1,), 1.0)


def test_rounding_costs_no_accelerator() -> None:
    """0.1 s and 0.2 s fill a cycle of 0.3 s, and half of 0.6 s; 16 ms and a wait of 20 ms are 36 ms."""
    first = SessionLoad(name="a", latency=np.array([0.0, 0.1]), budget=0.4, rate=10 / 3)
    second = SessionLoad(name="b", latency=np.array([0.0, 0.2]), budget=0.5, rate=10 / 3)
    assert 0.1 + 0.2 > 0.3
    assert [len(node.loads) for node in pack([first, second])] == [2]

    whole = SessionLoad(name="c", latency=np.array([0.0, 0.2, 0.1 + 0.2]), budget=0.6, rate=40 / 3)
    assert [node.batches for node in pack([whole])] == [(2,), (2,)]

    residue = SessionLoad(name="d", latency=np.array([0.0, 0.009, 0.016]), budget=0.036, rate=100.0)
    assert 2 + 100 * 0.016 > 100 * 0.036
    assert [node.batches for node in pack([residue])] == [(2,)]


def test_memory_keeps_models_apart() -> None:
    """Two models that fit into one cycle, but not into one memory, need two accelerators."""
    loads = [line("a", 10.0, memory=600.0), line("b", 10.0, memory=600.0)]

    assert len(pack(loads)) == 1
    assert len(pack(loads, memory=1000.0)) == 2


def test_rates_of_zero_need_nothing() -> None:
    """A session without requests has no backend."""
    assert pack([line("a", 10.0)], rates=[0.0]) == []


@pytest.mark.compiled
def test_the_least_is_found_by_integer_programming() -> None:
    """On 50 random instances the greedy packing needs at most 10 % more, and never less."""
    rng = np.random.default_rng(1)
    greedy = least = 0
    for _ in range(50):
        loads = random_loads(rng, 8, most=60.0)
        nodes = pack(loads, memory=1200.0)
        fewest = fewest_nodes(loads, nodes, memory=1200.0)

        assert fewest is not None
        assert len(fewest) <= len(nodes)
        assert sorted(load for node in fewest for load, _ in node.loads) == sorted(
            load for node in nodes for load, _ in node.loads
        )
        greedy, least = greedy + len(nodes), least + len(fewest)

    assert greedy / least <= 1.1

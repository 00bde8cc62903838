"""The rivals of the benchmarks do the same work: plain Python, SimPy and the compiled policies agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tuner.experiments.benchmarks.drive import Belt, drive, make_belt
from tuner.experiments.benchmarks.rivals.catalogue import POLICIES, build_plain
from tuner.experiments.benchmarks.rivals.plain import simulate_plain
from tuner.experiments.benchmarks.rivals.simpy_model import simulate_simpy, simulate_simpy_callbacks
from tuner.experiments.benchmarks.scenarios import SIZES, arrivals, cluster, grid
from tuner.experiments.benchmarks.scheduler import Alone
from tuner.scheduling.cluster import ClusterSpec, SessionSpec, linear_latency
from tuner.scheduling.vocabulary import OK

REQUESTS = 1500


def drive_in_pieces(policy: Any, time: np.ndarray, session: np.ndarray) -> Belt:
    """Drive a compiled policy; return its belt."""
    belt = make_belt(policy.cluster.accelerators.size)
    assert drive(policy, belt, time, session) == OK
    return belt


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("size", ["1 x 8", "37 x 64"])
@pytest.mark.parametrize("load", [0.7, 1.5])
def test_plain_python_and_the_compiled_policy_agree(policy: str, size: str, load: float) -> None:
    """The same requests are dropped, in under- and in overload."""
    scenario = cluster(size, policy, REQUESTS).scaled(load)
    time, session = arrivals(scenario, REQUESTS)
    alone = Alone(scenario, REQUESTS)

    alone()
    tally = simulate_plain(build_plain(policy, scenario.cluster_spec()), time.tolist(), session.tolist())

    assert (tally.good + tally.late, tally.dropped) == tuple(alone.belt.answered)
    assert tally.late == 0


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("load", [0.7, 1.5])
def test_simpy_and_plain_python_agree(policy: str, load: float) -> None:
    """SimPy only keeps the time."""
    pytest.importorskip("simpy")
    scenario = cluster("37 x 64", policy, REQUESTS).scaled(load)
    times, sessions = (part.tolist() for part in arrivals(scenario, REQUESTS))

    plain, callbacks, processes = (
        simulate(build_plain(policy, scenario.cluster_spec()), times, sessions)
        for simulate in (simulate_plain, simulate_simpy_callbacks, simulate_simpy)
    )

    assert callbacks == plain
    assert processes.batches == pytest.approx(plain.batches, abs=1)  # the last request comes too late
    assert processes.dropped <= plain.dropped <= processes.dropped + 20
    assert 0 <= plain.good - processes.good < 64 * 10  # sent, and not yet answered
    assert processes.late == 0


def test_three_requests_by_hand() -> None:
    """Two accelerators: the first two requests go alone, the third waits for the first end."""
    spec = ClusterSpec(
        sessions=[SessionSpec(name="a", slo=0.1, latency=linear_latency(0.01, 0.02, 0.1)[None])], kinds=[0, 0]
    )
    policy = build_plain("eager", spec)

    tally = simulate_plain(policy, [0.0, 0.001, 0.002, 0.05], [0, 0, 0, 0])

    assert (tally.good, tally.batches, tally.dropped) == (4, 4, 0)


def test_the_belt_keeps_batches_in_order() -> None:
    """Every accelerator's batches end one after the other, and all that arrived is answered or waits."""
    scenario = cluster("1 x 8", "symphony", REQUESTS)
    time, session = arrivals(scenario, REQUESTS)
    policy = scenario.make_policy()

    belt = drive_in_pieces(policy, time, session)

    waiting = policy.cluster.queues["tail"].sum() - policy.cluster.queues["head"].sum()
    assert belt.answered.sum() + waiting == REQUESTS
    assert belt.taken[0] == REQUESTS
    assert (belt.tail >= belt.head).all()


class TestScenarios:
    """The clusters of the benchmarks."""

    @pytest.mark.parametrize("size", SIZES)
    def test_sizes(self, size: str) -> None:
        """Sessions and accelerators are what the name says."""
        spec = cluster(size, "eager", 1000).cluster_spec()

        assert f"{len(spec.sessions)} x {len(spec.kinds)}" == size

    def test_load_grows_with_the_grid(self) -> None:
        """Ten times the cluster has about ten times the load, all its sessions the same."""
        small, large = grid(3, 30, "eager", 1000), grid(30, 300, "eager", 1000)

        assert large.total_rate == pytest.approx(10 * small.total_rate)
        assert large.seconds == pytest.approx(1000 / large.total_rate)

    def test_arrivals_are_the_first_of_the_workload(self) -> None:
        """As many as asked for, in order."""
        time, session = arrivals(cluster("37 x 64", "eager", 1000), 700)

        assert time.size == session.size == 700
        assert (np.diff(time) >= 0).all()
        assert 0 <= session.min() <= session.max() < 37

"""Bins of latency, quantiles, and which requests count."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.cluster.builders import StandIn
from tuner.cluster.simulation import Simulation
from tuner.cluster.statistics import BINS, clear, edges, latency_bin, median, quantile


def histogram(latencies: np.ndarray) -> np.ndarray:
    """Counts per bin."""
    return np.bincount([latency_bin(float(latency)) for latency in latencies], minlength=BINS)


def test_bins_hold_what_their_edges_say() -> None:
    """A latency lies between the edges of its bin, also when it is an edge itself."""
    limits = edges()
    latencies = np.concatenate((np.geomspace(1e-6, 4000.0, 500), limits[:-1:97]))

    for latency in latencies:
        place = latency_bin(float(latency))
        assert limits[place] <= latency < limits[place + 1]


def test_bins_are_narrow() -> None:
    """No bin is wider than 1 % of its latency."""
    limits = edges()

    assert (np.diff(limits) / limits[:-1]).max() <= 0.01


@pytest.mark.parametrize(("latency", "place"), [(0.0, 0), (1e-9, 0), (1e9, BINS - 1), (math.inf, BINS - 1)])
def test_extremes_fall_into_the_outer_bins(latency: float, place: int) -> None:
    """What is shorter or longer than any bin is still counted."""
    assert latency_bin(latency) == place


@pytest.mark.parametrize("share", [0.01, 0.5, 0.95, 0.99])
def test_quantiles_within_one_percent(share: float) -> None:
    """Quantiles of many latencies agree with the exact ones."""
    latencies = np.random.default_rng(1).gamma(3.0, 0.004, 3000)

    assert quantile(histogram(latencies), share) == pytest.approx(np.quantile(latencies, share), rel=0.01)


def test_quantiles_of_few() -> None:
    """Of one latency every quantile lies in its bin; of none there is none."""
    one = histogram(np.array([0.02]))

    assert [quantile(one, share) for share in (0.0, 0.5, 1.0)] == pytest.approx([0.02] * 3, rel=0.01)
    assert math.isnan(quantile(np.zeros(BINS, int), 0.5))


def test_quantiles_rise_with_the_share() -> None:
    """Also inside a bin."""
    counts = histogram(np.repeat([0.01, 0.02], 50))
    quantiles = [quantile(counts, share) for share in np.linspace(0, 1, 21)]

    assert quantiles == sorted(quantiles)
    assert len(set(quantiles)) == 21


def test_median() -> None:
    """The middle one, or the mean of the middle two."""
    assert median(np.array([0, 1, 1, 0, 1])) == 2
    assert median(np.array([0, 2, 1, 0, 1])) == 1.5
    assert median(np.array([0, 0, 0, 0, 4])) == 4
    assert math.isnan(median(np.zeros(5, int)))


def alternating() -> StandIn:
    """A request every second from 0.5 on, executed for 0.25 s, ten in all."""
    return StandIn(
        tables=[np.array([[0.0, 0.25]])], slos=[1.0], times=np.arange(10) + 0.5, sessions=np.zeros(10, int)
    )


def test_only_what_arrives_in_the_measured_part_counts() -> None:
    """Warm-up and end are cut off by the arrivals, and execution by the clock."""
    simulation = Simulation(alternating())
    simulation.measure(2.6, 7.6)  # cuts through executions at both ends: [2.5, 2.75) and [7.5, 7.75)
    simulation.advance(10.0)
    simulation.drain()
    outcome = simulation.outcome()

    assert outcome.sessions[0].requests == 5  # 3.5 ... 7.5
    assert outcome.seconds == pytest.approx(5.0)
    assert outcome.utilisation[0] == pytest.approx((0.15 + 4 * 0.25 + 0.1) / 5)


def test_the_measured_part_has_its_begin_but_not_its_end() -> None:
    """So that no request counts in two parts that follow each other, and each in one."""
    counts = []
    for begin, end in ((2.5, 5.5), (5.5, 8.5)):
        simulation = Simulation(alternating())
        simulation.measure(begin, end)
        simulation.advance(10.0)
        simulation.drain()
        counts.append(simulation.outcome().sessions[0].requests)

    assert counts == [3, 3]


def test_rounding_makes_no_answer_late() -> None:
    """From 0.7 s to 1 s it took 0.30000000000000004 s in floating point, and 0.3 s were allowed."""
    simulation = Simulation(
        StandIn(tables=[np.array([[0.0, 0.3]])], slos=[0.3], times=np.array([0.7]), sessions=np.zeros(1, int))
    )
    simulation.advance(2.0)
    simulation.drain()

    assert (simulation.totals.sessions["good"][0], simulation.totals.sessions["late"][0]) == (1, 0)


def test_a_wait_ends_where_the_execution_begins() -> None:
    """The second of two requests that come at once waits for the first, for 0.25 s."""
    times, sessions = np.array([1.0, 1.0]), np.zeros(2, int)
    simulation = Simulation(
        StandIn(tables=[np.array([[0.0, 0.25]])], slos=[1.0], times=times, sessions=sessions)
    )
    simulation.advance(2.0)
    simulation.drain()

    (tally,) = simulation.totals.sessions
    assert (tally["longest"], tally["queueing"], tally["latency"]) == pytest.approx((0.25, 0.25, 0.75))


def test_clear_keeps_the_interval() -> None:
    """Counts go to zero, what counts stays the same."""
    simulation = Simulation(alternating())
    simulation.measure(2.0, 8.0)
    simulation.advance(9.0)
    clear(simulation.totals)

    assert simulation.totals.interval[0].tolist() == (2.0, 8.0, 2.0, 8.0)
    assert simulation.totals.sessions["good"].sum() == 0
    assert simulation.totals.latencies.sum() == simulation.totals.batches.sum() == 0
    assert simulation.totals.accelerators["busy"].sum() == 0

"""The compiled engine does what its plain twin does, event by event, whatever the policy and the pieces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.cluster.builders import GRID, StandIn, jitter, on_grid, random_scenario
from tests.cluster.naive import NaiveEngine
from tuner.cluster import draws, execution
from tuner.cluster.draws import lognormal_factor
from tuner.cluster.simulation import Simulation
from tuner.cluster.statistics import BINS
from tuner.scheduling.catalogue import POLICIES, build_policy
from tuner.testing import odd_policy


def coarse_noise(generator: np.random.Generator, count: int) -> np.ndarray:
    """Factors that keep execution times on the grid most of the time."""
    return generator.choice([0.5, 1.0, 1.0, 2.0], count)


def twin(scenario: StandIn, factor: draws.Draw) -> NaiveEngine:
    """The naive engine with the same policy and the same drawn numbers, run to the end."""
    factors_from, delays_from = (np.random.default_rng((scenario.seed, stream)) for stream in (1, 2))
    blocks = [
        (factor(factors_from, draws.BLOCK), *scenario.draw_network(delays_from, draws.BLOCK))
        for _ in range(scenario.times.size // draws.BLOCK + 1)
    ]
    drawn: list[Any] = [np.concatenate(parts) for parts in zip(*blocks, strict=True)]
    naive = NaiveEngine(scenario.make_policy(), *drawn)
    naive.run(scenario.times, scenario.sessions)
    return naive


def run(scenario: StandIn, factor: draws.Draw, pieces: int = 1) -> Simulation:
    """The compiled engine, run to the end."""
    simulation = Simulation(scenario, factor=factor)
    for _ in range(pieces):
        simulation.advance(float(scenario.times[-1]) / pieces)
    simulation.advance(1.0)  # the last arrival happens at the end of the last piece, not before it
    simulation.drain()
    return simulation


def tallies(naive: NaiveEngine, scenario: StandIn) -> np.ndarray:
    """Good, late and dropped per session.   # (M, 3)."""
    counts = np.zeros((len(scenario.slos), 3), int)
    for request in naive.requests.values():
        late = request.latency > scenario.slos[request.session] + 1e-9
        counts[request.session, 2 if request.dropped else int(late)] += 1
    return counts


def histogram_bin(latency: float) -> int:
    """The bin of a latency, through the mantissa and the exponent."""
    mantissa, exponent = np.frexp(latency)
    return int(min(max((exponent - 1 + 20) * 128 + int((2 * mantissa - 1) * 128), 0), BINS - 1))


def assert_equal(simulation: Simulation, naive: NaiveEngine, scenario: StandIn) -> None:
    """Every count of the engine is that of the twin."""
    totals = simulation.totals
    counted = np.stack([totals.sessions[name] for name in ("good", "late", "dropped")], axis=1)
    assert counted.tolist() == tallies(naive, scenario).tolist()
    batches, latencies = np.zeros_like(totals.batches), np.zeros_like(totals.latencies)
    for batch in naive.batches:
        batches[batch.session, len(batch.requests)] += 1
    answered = [request for request in naive.requests.values() if not request.dropped]
    for request in answered:
        latencies[request.session, histogram_bin(request.latency)] += 1
    assert totals.batches.tolist() == batches.tolist()
    assert (totals.latencies == latencies).all()
    for session in range(len(scenario.slos)):
        mine = [request for request in answered if request.session == session]
        waits = [request.start - request.arrival for request in mine]
        tally = totals.sessions[session]
        assert tally["latency"] == pytest.approx(sum(request.latency for request in mine))
        assert tally["queueing"] == pytest.approx(sum(waits), abs=1e-9)
        assert tally["longest"] == pytest.approx(max(waits, default=0.0), abs=1e-9)
    for accelerator in range(len(scenario.kinds)):
        mine_too = [batch for batch in naive.batches if batch.accelerator == accelerator]
        use = totals.accelerators[accelerator]
        assert use["busy"] == pytest.approx(sum(batch.end - batch.start for batch in mine_too))
        assert use["batches"] == len(mine_too)


@pytest.mark.parametrize("policy", sorted(set(POLICIES) - {"oracle"}))
@pytest.mark.parametrize("seed", range(4))
def test_equal_to_the_twin(policy: str, seed: int) -> None:
    """Unlike accelerators, events at one instant, overload: every count is equal."""
    scenario = random_scenario(seed, build=lambda spec: build_policy(policy, spec))
    exact = lognormal_factor(0.0)

    assert_equal(run(scenario, exact), twin(scenario, exact), scenario)


@pytest.mark.parametrize("policy", sorted(set(POLICIES) - {"oracle"}))
def test_equal_to_the_twin_when_execution_differs_from_belief(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Noise on the execution and a jittery network, with several blocks of drawn numbers."""
    monkeypatch.setattr(draws, "BLOCK", 16)
    scenario = random_scenario(7, network=jitter, build=lambda spec: build_policy(policy, spec))

    assert_equal(run(scenario, coarse_noise, pieces=3), twin(scenario, coarse_noise), scenario)


@pytest.mark.parametrize("chunk", [1, 7, 1000])
@pytest.mark.parametrize("pieces", [1, 10])
def test_pieces_do_not_matter(chunk: int, pieces: int) -> None:
    """Whatever the chunks of arrivals and the pieces of time, the counts are the same to the last bit."""
    reference = run(random_scenario(11, network=jitter), lognormal_factor(0.3)).totals
    scenario = random_scenario(11, network=jitter, chunk=chunk)
    totals = run(scenario, lognormal_factor(0.3), pieces).totals

    for mine, theirs in zip(totals, reference, strict=True):
        assert mine.tobytes() == theirs.tobytes()


def test_several_batches_ahead() -> None:
    """A policy may send any number of batches ahead; they are executed one after another."""
    scenario = random_scenario(3, build=odd_policy.build)
    simulation = run(scenario, coarse_noise)

    assert simulation._execution.sent.shape[1] > execution.DEPTH
    assert_equal(simulation, twin(scenario, coarse_noise), scenario)


def test_a_full_ring_grows() -> None:
    """When more requests wait than the policy has room for, it is given room, and nothing is lost."""
    scenario = random_scenario(5, slos=[1e3] * 5)
    scenario.slos = scenario.slos[: len(scenario.tables)]
    scenario.times = scenario.times / 50
    simulation = run(scenario, lognormal_factor(0.0))

    assert simulation.policy.cluster.waiting.shape[1] > 64
    assert simulation.totals.sessions["good"].sum() == scenario.times.size
    assert_equal(simulation, twin(scenario, lognormal_factor(0.0)), scenario)


def test_five_requests_by_hand() -> None:
    """A trace worked out by hand: batches form while the accelerator is busy, within the oldest deadline."""
    scenario = StandIn(
        tables=[np.array([[0.0, 2.0, 3.0, 4.0]])],
        slos=[5.0],
        times=np.array([1.0, 1.5, 2.0, 3.0, 4.0]),
        sessions=np.zeros(5, int),
    )
    simulation = run(scenario, lognormal_factor(0.0))
    tally = simulation.totals.sessions[0]

    # [1, 3) the first; [3, 6) the next two, reported before the one that arrives at 3; [6, 8) the fourth
    # alone, for two would end at 9 > 3 + 5; the last could end at 10 > 4 + 5 and is dropped.
    assert simulation.totals.batches[0].tolist() == [0, 2, 1, 0]
    assert (tally["good"], tally["late"], tally["dropped"]) == (4, 0, 1)
    assert tally["latency"] == 2.0 + 4.5 + 4.0 + 5.0
    assert tally["queueing"] == 0.0 + 1.5 + 1.0 + 3.0
    assert tally["longest"] == 3.0
    assert simulation.totals.accelerators[0]["busy"] == 7.0


def test_events_at_one_instant_come_in_order() -> None:
    """An accelerator that becomes free at the instant of an arrival is reported first."""
    scenario = StandIn(
        tables=[np.array([[0.0, 1.0, 1.0]])],
        slos=[10.0],
        times=np.array([1.0, 1.0, 2.0]),
        sessions=np.zeros(3, int),
    )

    # At 2 the end of the first batch comes before the third request, so the second is sent alone.
    assert run(scenario, lognormal_factor(0.0)).totals.batches[0].tolist() == [0, 3, 0]


def test_a_slow_network_delays_the_start_only() -> None:
    """The batch starts when its data is there, and its answer travels after its end."""
    scenario = StandIn(
        tables=[np.array([[0.0, 1.0]])],
        slos=[10.0],
        times=np.array([1.0]),
        sessions=np.zeros(1, int),
        network=lambda generator, count: (np.array([0.25]), np.array([0.5]), np.array([2.0])),
    )
    tally = run(scenario, lognormal_factor(0.0)).totals.sessions[0]

    assert tally["queueing"] == 0.75
    assert tally["latency"] == 3.75


def test_late_through_noise_only() -> None:
    """A batch that takes longer than believed is late; one within rounding of its deadline is good."""
    scenario = StandIn(
        tables=[np.array([[0.0, 1.0]])],
        slos=[1.0],
        times=np.array([0.1, 5.0]),
        sessions=np.zeros(2, int),
    )
    factors = np.resize([1.0, 1.5], draws.BLOCK)
    tally = run(scenario, lambda generator, count: factors).totals.sessions[0]

    assert (tally["good"], tally["late"]) == (1, 1)


def test_a_policy_that_answers_nothing_is_named() -> None:
    """Requests without an answer are the policy's mistake, and said so."""
    scenario = random_scenario(0, build=lambda spec: odd_policy.build(spec, odd_policy.FORGETFUL))

    with pytest.raises(AssertionError, match="Odd leaves 300 of 300 requests without an answer"):
        run(scenario, lognormal_factor(0.0))


def test_a_policy_that_never_sleeps_is_named() -> None:
    """Asking for wake at one instant for ever ends in an error, not in an endless loop."""
    scenario = random_scenario(0, build=lambda spec: odd_policy.build(spec, odd_policy.SLEEPLESS))

    with pytest.raises(AssertionError, match=r"Odd asks for wake at .* for ever"):
        run(scenario, lognormal_factor(0.0))


def test_a_periodic_timer_ends_with_the_requests() -> None:
    """A policy that wants to be woken for ever is not, once everything is answered."""
    scenario = random_scenario(3, build=lambda spec: odd_policy.build(spec, odd_policy.PERIODIC))
    simulation = run(scenario, lognormal_factor(0.0))

    assert simulation.totals.sessions["good"].sum() + simulation.totals.sessions["late"].sum() == 300
    assert simulation.now < scenario.times[-1] + 300


def test_random_scenarios_are_on_the_grid() -> None:
    """The scenarios above have events at one instant, or the order of ties would not be tested."""
    times = random_scenario(0).times

    assert (on_grid(times) == times).all()
    assert (np.diff(times) == 0).any()
    assert GRID > 0

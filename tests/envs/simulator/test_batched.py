"""The batched simulator: compiled windows against their plain twin, seeds, quantiles, bad input."""

from __future__ import annotations

import numpy as np
import pytest

from tests.envs.simulator.naive_window import naive_window
from tuner.envs.simulator import window
from tuner.envs.simulator.batched import BatchedSimulator, Plans, Traffic, draw
from tuner.envs.simulator.window import Jobs, Span
from tuner.errors import InvalidInput

TRAFFIC = Traffic(
    noise=0.2, sizes=0.5, overhead=0.002, overhead_noise=0.3, warm_up=0.5, cpu_per_request=0.001
)


def plans(generator: np.random.Generator, size: int = 12, largest: int = 6) -> Plans:
    """Return random configurations of a small machine."""
    batches = generator.integers(1, largest + 1, size)
    profile = np.concatenate(
        (np.zeros((size, 1)), np.cumsum(generator.uniform(0.004, 0.03, (size, largest)), axis=1)), axis=1
    )
    return Plans(
        max_batch=batches,
        delay=np.where(batches > 1, generator.uniform(0.0, 0.05, size), 0.0),
        instances=generator.integers(1, 6, size),
        closing=generator.choice([0.0, 0.5, 1.0], size),
        profile=profile,
        gap=np.full(size, 0.001),
        contention=np.full(size, 0.05),
        switching=np.full(size, 0.2),
        cores=np.full(size, 4.0),
        threads=generator.uniform(0.5, 3.0, size),
        front=np.full(size, 0.001),
    )


@pytest.mark.parametrize("burstiness", [1.0, 0.3])
def test_equals_naive(burstiness: float) -> None:
    """Every compiled window equals its plain twin's, overload included."""
    generator = np.random.default_rng(5)
    simulator = BatchedSimulator(
        plans(generator), Traffic(**{**vars(TRAFFIC), "burstiness": burstiness}), workers=1
    )
    numbers, rates = np.arange(12), generator.uniform(5.0, 120.0, 12)
    seeds = generator.integers(0, 3, 12).astype(np.uint64)

    arrays = simulator.step(numbers, rates, seeds, 3.0)

    unique, row = np.unique(seeds, return_inverse=True)
    draws = draw(unique, 120.0 * 3.5, simulator.traffic)
    jobs = Jobs(numbers, rates, row)
    for job in range(12):
        twin = naive_window(simulator.plans, jobs, draws, Span(0.5, 3.5), job)
        busy = twin.pop("busy")
        for name, value in twin.items():
            assert getattr(arrays, name)[job] == pytest.approx(value, rel=1e-9, nan_ok=True), (name, job)
        outside = twin["requests"] * TRAFFIC.cpu_per_request
        assert arrays.cpu[job] == pytest.approx((busy + outside) / 3.0, rel=1e-9)
        assert arrays.rate[job] == twin["requests"] / 3.0


def test_quantiles_equal_numpys() -> None:
    """The selection gives the quantiles that numpy gives, ties and tiny samples included."""
    generator = np.random.default_rng(2)
    for count in (1, 2, 3, 10, 101, 1000):
        for values in (generator.exponential(1.0, count), generator.integers(0, 4, count).astype(float)):
            for share in (0.0, 0.5, 0.95, 0.99, 1.0):
                found = window.quantile(values.copy(), count, share)

                assert found == pytest.approx(np.quantile(values, share), rel=1e-12), (count, share)


def test_a_window_depends_on_nothing_else() -> None:
    """A window is the same alone and among others, in any order, in one thread and in several."""
    generator = np.random.default_rng(7)
    some = plans(generator)
    numbers = generator.integers(0, 12, 90)
    rates, seeds = generator.uniform(5.0, 60.0, 90), generator.integers(0, 9, 90).astype(np.uint64)
    simulator = BatchedSimulator(some, TRAFFIC, workers=2)

    together = simulator.step(numbers, rates, seeds, 2.0)
    backwards = simulator.step(numbers[::-1], rates[::-1], seeds[::-1], 2.0)
    simulator.close()

    for name, array in together._asdict().items():
        assert np.array_equal(array, getattr(backwards, name)[::-1], equal_nan=True), name
    for row in range(0, 90, 17):
        one = slice(row, row + 1)
        alone = BatchedSimulator(some, TRAFFIC, workers=1).step(numbers[one], rates[one], seeds[one], 2.0)
        assert alone.p95[0] == together.p95[row]
        assert alone.requests[0] == together.requests[row]


def test_equal_seeds_equal_arrivals() -> None:
    """Under every configuration the same requests come; a longer window only adds to them."""
    simulator = BatchedSimulator(plans(np.random.default_rng(1)), TRAFFIC, workers=1)

    arrays = simulator.step(np.arange(12), np.full(12, 30.0), np.full(12, 4, np.uint64), 2.0)

    assert len(set(arrays.requests.tolist())) == 1
    short, long = (draw(np.array([4], np.uint64), expected, TRAFFIC) for expected in (70.0, 700.0))
    width = short.come.shape[1]
    assert np.array_equal(short.come[0], long.come[0, :width])
    assert np.array_equal(short.noise[0], long.noise[0, :width])


def test_burstiness() -> None:
    """A smaller shape of the gaps makes the number of requests spread more, an infinite one not at all."""
    spread = []
    for shape in (np.inf, 1.0, 0.1):
        simulator = BatchedSimulator(plans(np.random.default_rng(1)), Traffic(burstiness=shape), workers=1)
        arrays = simulator.step(np.zeros(40, int), np.full(40, 20.0), np.arange(40).astype(np.uint64), 3.0)
        spread.append(float(np.std(arrays.requests)))
        assert np.mean(arrays.requests) == pytest.approx(60.0, rel=0.2)

    assert spread[0] == 0.0
    assert spread[1] == pytest.approx(np.sqrt(60.0), rel=0.4)
    assert spread[2] > 2 * spread[1]


def test_nothing_came() -> None:
    """A window without a request has no latency, and no error."""
    simulator = BatchedSimulator(plans(np.random.default_rng(1)), TRAFFIC, workers=1)

    arrays = simulator.step(np.zeros(3, int), np.full(3, 0.001), np.arange(3).astype(np.uint64), 1.0)

    assert arrays.requests.tolist() == [0, 0, 0]
    assert np.isnan([arrays.mean, arrays.p95, arrays.queue_mean, arrays.batch_mean]).all()
    assert arrays.cpu.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("numbers", "rates", "seconds", "named"),
    [
        ([0, 1], [1.0], 1.0, "configurations"),
        ([12], [1.0], 1.0, "configurations"),
        ([-1], [1.0], 1.0, "configurations"),
        ([0], [0.0], 1.0, "rates"),
        ([0], [np.nan], 1.0, "rates"),
        ([0], [1.0], 0.0, "window"),
    ],
)
def test_bad_input(numbers: list[int], rates: list[float], seconds: float, named: str) -> None:
    """What makes no sense is refused by name."""
    simulator = BatchedSimulator(plans(np.random.default_rng(1)), TRAFFIC, workers=1)

    with pytest.raises(InvalidInput, match=named):
        simulator.step(np.array(numbers), np.array(rates), np.zeros(len(rates), np.uint64), seconds)


def test_bad_plans() -> None:
    """A plan that makes no sense is refused when the simulator is made."""
    good = plans(np.random.default_rng(1))
    for change in (
        {"delay": np.full(12, np.nan)},
        {"gap": np.full(3, 0.0)},
        {"max_batch": np.full(12, 99)},
        {"cores": np.zeros(12)},
    ):
        with pytest.raises(InvalidInput, match="plans"):
            BatchedSimulator(good._replace(**change), TRAFFIC)

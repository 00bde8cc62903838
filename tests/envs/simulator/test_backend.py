"""Tests of the simulated Triton as backend, clock, clients and host."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.adapters import connect
from tuner.envs.simulator.backend import SimulatedTriton
from tuner.envs.simulator.batcher import Batching
from tuner.envs.simulator.server import ServerModel
from tuner.envs.simulator.world import Neighbour, World
from tuner.errors import InvalidInput
from tuner.knobs import ApplyCost, Configuration
from tuner.testing.backend import BackendContract, Traffic
from tuner.workload.schedule import RateSchedule


class TestContract(BackendContract):
    """The contract of backends; the load is exactly what the tests send."""

    below = -1.0

    @pytest.fixture
    def backend(self) -> SimulatedTriton:
        silence = RateSchedule(steps=((0.0, 0.0), (1e9, 1.0)))
        return SimulatedTriton(ServerModel(), silence, shape=math.inf)

    @pytest.fixture
    def traffic(self, backend: SimulatedTriton) -> Traffic:
        def send(count: int) -> None:
            backend.offer(RateSchedule(steps=((0.0, 100.0), (count / 100, 0.0), (1e9, 1.0))))
            backend.sleep(count / 100 + 1.0)

        return send


def test_set_rate() -> None:
    """Another rate holds from the moment it is set."""
    backend = simulated("sim://mlp?rate=50")
    backend.sleep(20.0)
    backend.set_rate(400.0)
    backend.sleep(20.0)

    counts = [backend.sample(start, start + 20.0).intended.size for start in (0.0, 20.0)]

    assert backend.rate == 400.0
    assert counts == pytest.approx([1000, 8000], rel=0.1)


def simulated(
    target: str = "sim://mlp?rate=200&seed=1", grids: dict[str, tuple[float, ...]] | None = None
) -> SimulatedTriton:
    backend = connect(target, grids)
    assert isinstance(backend, SimulatedTriton)
    return backend


def configured(batch: float, delay: float, instances: float) -> Configuration:
    return Configuration(max_batch_size=batch, max_queue_delay=delay, instances=instances)


def test_space() -> None:
    """Knobs, grids and costs are those of the Triton adapter; instances go up to the cores."""
    space = simulated("sim://mlp?cores=3").space

    assert space.names == ("max_batch_size", "max_queue_delay", "instances")
    assert space.knobs[2].grid == (1.0, 2.0, 3.0)
    assert [knob.apply_cost for knob in space.knobs] == [
        ApplyCost.RELOAD,
        ApplyCost.RELOAD,
        ApplyCost.RELOAD,
    ]
    assert space.default == configured(1.0, 0.0, 1.0)


def test_apply_costs_time() -> None:
    """A reload and a change of instances take their time; the same configuration again takes none."""
    backend = simulated()

    reports = [backend.apply(configured(8, 0.002, 1)) for _ in range(2)]
    reports.append(backend.apply(configured(8, 0.002, 2)))

    assert [report.changed for report in reports] == [True, False, True]
    assert [report.cost for report in reports] == [ApplyCost.RELOAD, ApplyCost.FREE, ApplyCost.RELOAD]
    assert [report.seconds for report in reports] == [0.3, 0.0, 0.3]
    assert reports[0].settle == 1.5
    assert backend.now() == pytest.approx(0.6)
    assert backend.current() == configured(8.0, 0.002, 2.0)


def test_no_delay_without_batching() -> None:
    """A delay has no effect with max_batch_size 1 and reads back as 0."""
    backend = simulated()

    report = backend.apply(configured(1, 0.02, 1))

    assert not report.changed
    assert report.configuration == configured(1.0, 0.0, 1.0)


@pytest.mark.parametrize(
    "values",
    [
        {"max_batch_size": 8},
        {"max_batch_size": 8, "max_queue_delay": 0.0, "instances": 1, "colour": 1},
        {"max_batch_size": 1.5, "max_queue_delay": 0.0, "instances": 1},
        {"max_batch_size": 0, "max_queue_delay": 0.0, "instances": 1},
        {"max_batch_size": 8, "max_queue_delay": -1.0, "instances": 1},
        {"max_batch_size": 8, "max_queue_delay": float("nan"), "instances": 1},
        {"max_batch_size": 8, "max_queue_delay": 0.0, "instances": 1e6},
    ],
)
def test_refuses_nonsense(values: dict[str, float]) -> None:
    """An unusable configuration is the caller's mistake, and nothing changes."""
    backend = simulated()

    with pytest.raises(InvalidInput, match="knob"):
        backend.apply(Configuration(values))

    assert backend.current() == backend.space.default
    assert backend.now() == 0.0


def test_reconfiguring_loses_nothing() -> None:
    """Every request sent during many changes is answered."""
    backend = simulated("sim://mlp?rate=150&seed=2")
    generator = np.random.default_rng(1)

    for _ in range(50):
        backend.apply(backend.space.sample(generator))
        backend.sleep(0.2)
    backend.apply(configured(8, 0.0, 2))
    end = backend.now()
    backend.sleep(20.0)
    sample = backend.sample(0.0, end)

    assert sample.failed == 0
    assert not np.isnan(sample.latency).any()
    assert sample.intended.size == pytest.approx(150 * end, rel=0.1)


def test_overload_builds_up_and_drains() -> None:
    """Latency grows from window to window under overload, and falls with a better configuration."""
    backend = simulated("sim://mlp?rate=300&seed=3")
    means = []
    for configuration in (configured(1, 0, 1), configured(1, 0, 1), configured(8, 0, 2), configured(8, 0, 2)):
        backend.apply(configuration)
        start = backend.now()
        backend.sleep(5.0)
        means.append(float(np.nanmean(backend.sample(start, start + 5.0).latency)))

    assert means[1] > 2 * means[0]
    assert means[3] < 0.02


def test_unanswered_requests() -> None:
    """Clients wait a second for answers; what has not come is not a number."""
    backend = simulated("sim://mlp?rate=1000&seed=3")
    backend.sleep(5.0)

    sample = backend.sample(0.0, 5.0)

    assert backend.now() == pytest.approx(6.0)
    assert 0.5 < np.isnan(sample.latency).mean() < 0.9
    assert sample.failed == 0
    assert backend.counters().pending == pytest.approx(np.isnan(sample.latency).sum(), abs=1100)


@pytest.mark.compiled
def test_a_window_keeps_its_requests_while_it_waits_for_answers() -> None:
    """So many come meanwhile that the log has no room for both: later ones took the places of its own."""
    world = World(ServerModel(), RateSchedule.constant(40_000.0), seed=0, largest=32, instances=2)
    world.configure(Batching(32, 0.0, 2), fresh=False)
    world.advance(4.2)

    sample = world.sample(1.0, 4.2)

    assert world.now > 4.2
    assert sample.intended.size == pytest.approx(128_000, rel=0.01)
    assert (np.diff(sample.intended) >= 0).all()
    assert 1.0 <= sample.intended[0] <= sample.intended[-1] < 4.2


def test_counters_never_fall_and_add_up() -> None:
    """Totals of requests, batches and time agree with each other and with the clients."""
    backend = simulated()
    backend.apply(configured(8, 0.005, 1))
    start = backend.now()
    before = backend.counters()
    backend.sleep(20.0)
    after = backend.counters()
    sample = backend.sample(start, backend.now())

    sizes = np.arange(after.batch_counts.size)
    assert after.requests == after.batch_counts @ sizes
    assert after.compute == pytest.approx(after.batch_seconds @ sizes)
    assert after.latency == pytest.approx(after.queue + after.compute)
    mean = (after.latency - before.latency) / (after.requests - before.requests)
    assert np.mean(sample.latency) - mean == pytest.approx(ServerModel().overhead, rel=0.2)


def test_host() -> None:
    """The server uses its executions and overheads, the clients theirs, and strangers the rest."""
    backend = SimulatedTriton(ServerModel(contention=0.0), RateSchedule.constant(100.0), seed=1)
    backend.neighbour = Neighbour(cores=0.5)
    backend.sleep(100.0)

    reading = backend.read()

    assert backend.cores == 2.0
    assert reading.own == pytest.approx(100 * 100 * 0.0006, rel=0.05)
    assert reading.server == pytest.approx(100 * 100 * (0.005 + 0.00055), rel=0.1)
    assert reading.total - reading.server - reading.own == pytest.approx(50.0)


def test_foreign_load_hurts() -> None:
    """Strangers on both cores make everything slower."""
    p95 = []
    for foreign in (0.0, 2.0):
        backend = SimulatedTriton(ServerModel(), RateSchedule.constant(150.0), seed=1)
        backend.neighbour = Neighbour(cores=foreign)
        backend.sleep(20.0)
        p95.append(float(np.nanquantile(backend.sample(0.0, 20.0).latency, 0.95)))

    assert p95[1] > 1.5 * p95[0]


def test_a_slower_machine() -> None:
    """Executions take longer by the factor, from the moment it is set."""
    compute = []
    for factor in (1.0, 2.0):
        backend = SimulatedTriton(ServerModel(noise=0.0), RateSchedule.constant(10.0), seed=1)
        backend.slowdown = factor
        backend.sleep(100.0)
        compute.append(backend.counters().compute / backend.counters().requests)

    assert compute[1] == pytest.approx(2.0 * compute[0], rel=0.05)
    assert backend.reseeded(3).slowdown == 2.0


def test_profile_is_recovered() -> None:
    """l(b) from the totals is near that of the server."""
    backend = SimulatedTriton(
        ServerModel(table={}, alpha=0.001, beta=0.004, noise=0.0), RateSchedule.constant(250.0), seed=1
    )
    assert backend.profile() is None
    backend.apply(configured(16, 0.01, 1))
    backend.sleep(60.0)

    profile = backend.profile()

    assert profile is not None
    assert (profile.alpha, profile.beta) == pytest.approx((0.001, 0.004), rel=0.05)


def test_same_seed_same_world() -> None:
    """Two worlds with the same seed agree in every latency, however time is cut."""
    samples = []
    for steps in (1, 10):
        backend = simulated()
        for _ in range(steps):
            backend.sleep(10.0 / steps)
        samples.append(backend.sample(0.0, 10.0))

    assert np.array_equal(samples[0].intended, samples[1].intended)
    assert samples[0].latency == pytest.approx(samples[1].latency)


def test_server_file(tmp_path: Path) -> None:
    """A target may name a file that describes the server."""
    path = tmp_path / "server.json"
    ServerModel(name="cnn", cores=4).save(path)

    backend = simulated(f"sim://cnn?server={path}")

    assert backend.describe().model == "cnn"
    assert backend.cores == 4


@pytest.mark.parametrize(
    "target",
    [
        "sim://resnet",
        "sim://mlp?rate=fast",
        "sim://mlp?seed=-1",
        "sim://mlp?colour=red",
        "sim://mlp?server=missing.json",
        "sim://mlp?cores=0",
        "sim://mlp?shape=0",
    ],
)
def test_bad_target(target: str) -> None:
    """A bad target is the caller's mistake."""
    with pytest.raises(InvalidInput):
        connect(target)


@pytest.mark.parametrize(
    "grids",
    [{"colour": (1.0,)}, {"max_batch_size": (0.5,)}, {"max_queue_delay": (-1.0, 0.0)}, {"instances": ()}],
)
def test_bad_grid(grids: dict[str, tuple[float, ...]]) -> None:
    """A bad grid is the caller's mistake."""
    with pytest.raises(InvalidInput, match="knob"):
        simulated(grids=grids)


@pytest.mark.parametrize("delay", [-1.0, 3600.0])
def test_delays_end_somewhere(delay: float) -> None:
    """The message says up to where, and how delays are written."""
    words = f"max_queue_delay: {delay:g} is not between 0 and 60; write it with its unit, like 2ms"
    with pytest.raises(InvalidInput, match=words):
        simulated(grids={"max_queue_delay": (delay,)})


def test_grid_without_the_default() -> None:
    """A grid may leave out the server's default; then the lowest value is it."""
    backend = simulated(grids={"max_batch_size": (4, 8)})

    assert backend.current()["max_batch_size"] == 4


def test_a_neighbour_comes_and_goes() -> None:
    """It is away for the first half of each period, whatever the steps in which time passes."""
    backend = simulated("sim://mlp?rate=50&foreign=1&period=60")
    used = []
    for _ in range(8):
        before = backend.read()
        backend.sleep(15.0)
        after = backend.read()
        used.append(after.total - after.server - after.own - (before.total - before.server - before.own))
    backend.sleep(600.0)

    assert used == pytest.approx([0, 0, 15, 15, 0, 0, 15, 15], abs=1e-6)
    assert backend.read().waited > 0
    assert backend.reseeded(3).neighbour == Neighbour(cores=1.0, period=60.0)


@given(st.floats(0.5, 1e3), st.floats(0, 1e6))
def test_the_next_move_of_a_neighbour_is_ahead(period: float, time: float) -> None:
    """And within half a period."""
    ahead = Neighbour(cores=1.0, period=period).next_change(time) - time

    assert 0 < ahead <= period / 2 * (1 + 1e-9) + 1e-9

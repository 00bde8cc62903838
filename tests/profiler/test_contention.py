"""Contention: its figures by hand, and which windows are set aside for it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import configuration, measurement
from tuner.agents.load_levels import neighbours
from tuner.agents.rrl.agent import RRL
from tuner.control import ControlLoop, Driver, Watched
from tuner.knobs import Configuration
from tuner.measurement import Measurement, Work
from tuner.objective import Objective, parse_slo
from tuner.profiler.attachment import attach
from tuner.profiler.contention import ContentionMonitor, foreign_figures
from tuner.profiler.gpu import GpuReading
from tuner.profiler.source import HostReading

NOTHING_COUNTED = Work(
    requests=5, queue=0.0, compute=0.0, inferences=5, batch_counts=np.zeros(1), batch_seconds=np.zeros(1)
)
HERE, THERE = configuration(), configuration(instances=2)
BEFORE = HostReading(time=0.0, server=0.0, own=0.0, total=0.0, cores=2.0, steal=0.0, ran=0.0, waited=0.0)


def figures(gpu: float = math.nan, **after: Any) -> dict[str, float]:
    return foreign_figures(BEFORE, replace(BEFORE, time=10.0, gpu=GpuReading(foreign=gpu), **after))


def test_waiting_is_charged_to_whoever_has_the_cores() -> None:
    """The server waited a third of the time it wanted a core; others had half of the busy cores."""
    seen = figures(server=8.0, own=1.0, total=18.0, ran=8.0, waited=4.0)

    assert seen["foreign_cpu"] == pytest.approx(0.9)
    assert seen["foreign_share"] == pytest.approx(0.45)
    assert seen["run_delay"] == pytest.approx(1 / 3)
    assert seen["contention"] == pytest.approx(1 / 6)


def test_steal_and_the_gpu_take_their_share() -> None:
    """The hypervisor took a tenth of what was wanted, another process half of the GPU."""
    seen = figures(server=9.0, total=10.0, steal=1.0, ran=9.0, gpu=0.5)

    assert seen["steal"] == pytest.approx(0.1)
    assert seen["contention"] == pytest.approx(1 - 0.9 * 0.5)
    assert seen["foreign_share"] == pytest.approx(1 - 0.95 * 0.5)


def test_nobody_waits_for_a_process_that_the_hypervisor_kept_from_running() -> None:
    """A ninth of what was wanted is withheld; of what ran, others had a fourth, for which a fourth waited."""
    seen = figures(server=6.0, total=9.0, steal=1.0, ran=6.0, waited=2.0)

    assert seen["contention"] == pytest.approx(1 - (1 - 0.25 * 0.25) * (1 - 1 / 9))


def test_pressure_and_throttling_are_shares_of_the_window() -> None:
    """Both are known only where the kernel counts them."""
    pressed = replace(BEFORE, pressure=5.0, throttled=1.0)
    seen = foreign_figures(pressed, replace(pressed, time=10.0, pressure=9.0, throttled=1.5))

    assert (seen["cpu_pressure"], seen["throttled"]) == pytest.approx((0.4, 0.05))
    assert math.isnan(figures()["cpu_pressure"])


@given(
    st.fixed_dictionaries(
        {
            name: st.floats(0, 1e6) | st.just(math.nan)
            for name in ("server", "own", "total", "cores", "steal", "ran", "waited", "pressure")
        }
    ),
    st.floats(0, 1) | st.just(math.nan),
)
def test_shares_are_shares(readings: dict[str, Any], gpu: float) -> None:
    """Whatever the counters do, every share is between 0 and 1, or not known."""
    seen = foreign_figures(BEFORE, HostReading(time=10.0, gpu=GpuReading(foreign=gpu), **readings))

    for name in ("foreign_share", "run_delay", "contention", "cpu_pressure", "throttled"):
        assert math.isnan(seen[name]) or 0 <= seen[name] <= 1


def test_a_machine_that_cannot_be_seen_shows_nothing() -> None:
    """An absent steal is not an absent contention."""
    seen = foreign_figures(HostReading(time=0.0), HostReading(time=10.0))

    assert all(math.isnan(value) for value in seen.values())
    assert foreign_figures(BEFORE, BEFORE) == {}
    assert math.isnan(figures(ran=math.nan, server=1.0, total=1.0)["contention"])


class Span(NamedTuple):
    """Some windows alike: their neighbours, the configuration, and how long executions take."""

    windows: int
    contention: float
    foreign: float
    running: Configuration = HERE
    execution: float = 0.005


def set_aside(*spans: Span, noise: float = 0.1, seed: int = 0) -> list[int]:
    """Return the numbers of the windows that are set aside, from 0."""
    random, monitor, moved = np.random.default_rng(seed), ContentionMonitor(), []
    numbers = [span for span in spans for _ in range(span.windows)]
    for number, span in enumerate(numbers):
        factor = math.exp(random.normal(0, noise))
        window = replace(
            measurement(running=span.running),
            contention=span.contention * factor,
            foreign_share=span.foreign * math.exp(random.normal(0, noise / 3)),
        )
        counts = np.array([0, 800, 100])
        slow = span.execution * math.exp(random.normal(0, noise / 5))
        work = Work(
            requests=1000, queue=0.0, compute=0.0, inferences=1000, batch_counts=counts,
            batch_seconds=counts * slow * np.array([0, 1, 1.4]),
        )  # fmt: skip
        if monitor.moved(window, work):
            moved.append(number)
        monitor.add(window, work)
    return moved


@given(st.integers(0, 1000), st.floats(0, 0.6), st.floats(0, 0.9))
def test_a_steady_neighbour_disturbs_nothing(seed: int, contention: float, foreign: float) -> None:
    """However much it takes: of 40 windows with a noise of a tenth at most four are outliers."""
    assert len(set_aside(Span(40, contention, foreign), seed=seed)) <= 4


def test_only_windows_of_the_move_are_set_aside() -> None:
    """That in which a neighbour comes half way; where it goes between two windows, the first without it."""
    came = set_aside(Span(10, 0.0, 0.05), Span(1, 0.12, 0.3), Span(10, 0.25, 0.5))
    went = set_aside(Span(10, 0.0, 0.05), Span(10, 0.25, 0.5), Span(10, 0.0, 0.05))

    assert came == [10]
    assert went == [10]


def test_a_neighbour_that_comes_back_is_known() -> None:
    """Only its first coming is a move from what was seen before, if it comes between two windows."""
    spans = [Span(6, 0.0, 0.05), Span(6, 0.25, 0.5)] * 4

    assert set_aside(*spans) == [6]


def test_windows_that_are_all_the_same_are_no_error() -> None:
    """Without any noise, as figures of a server that nothing but its executions are known of may be."""
    unknown = math.nan
    spans = [Span(6, unknown, unknown), Span(6, unknown, unknown, execution=0.01)] * 3

    assert set_aside(*spans, noise=0.0) == [6]


def test_cores_that_nobody_misses_disturb_nothing() -> None:
    """Others use more and less of idle cores; the server waits no more than before."""
    assert set_aside(Span(10, 0.01, 0.075), Span(10, 0.012, 0.25), Span(10, 0.01, 0.075)) == []


def test_a_change_of_our_own_is_no_move() -> None:
    """Two instances wait for each other and for the neighbour, who does what it did before."""
    assert set_aside(Span(10, 0.05, 0.5), Span(10, 0.25, 0.5, THERE), Span(5, 0.05, 0.5)) == []


def test_a_window_of_which_nothing_is_known_hides_no_move() -> None:
    """Nor is what follows it one: such as where the server did nothing for a while."""
    unknown = Span(1, math.nan, math.nan)

    assert set_aside(Span(5, 0.05, 0.3), unknown, Span(5, 0.05, 0.3), Span(5, 0.25, 0.5)) == [11]


def test_executions_show_what_cannot_be_seen() -> None:
    """On a remote host: executions that take 40 % longer are a move, 5 % are not."""
    unknown = math.nan
    moved = set_aside(Span(10, unknown, unknown), Span(6, unknown, unknown, execution=0.007))
    chance = set_aside(Span(10, unknown, unknown), Span(6, unknown, unknown, execution=0.00525))

    assert moved == [10]
    assert chance == []


def test_with_no_view_at_all_nothing_is_set_aside() -> None:
    """Neither the machine nor executions can be seen."""
    monitor, work = ContentionMonitor(), NOTHING_COUNTED
    for p95 in (0.01, 0.01, 0.01, 0.01, 0.9):
        assert monitor.moved(measurement(p95), work) == ""
        monitor.add(measurement(p95), work)


def test_the_reason_says_how_far() -> None:
    """In words that `tuner explain` prints."""
    monitor, work = ContentionMonitor(), NOTHING_COUNTED
    for _ in range(5):
        monitor.add(replace(measurement(), contention=0.02, foreign_share=0.1), work)
    window = replace(measurement(), contention=0.3, foreign_share=0.5)

    assert monitor.moved(window, work) == "contention moved from 2% to 30% of the server's working time"


def life(target: str, windows: int) -> list[tuple[Measurement, int | None]]:
    """Let the control loop tune a simulated server; return its windows and their load levels."""
    with attach(target) as attachment:
        agent = RRL(attachment.space, seed=0, synchronous=True)
        loop = ControlLoop(attachment.space, Objective(slo=parse_slo("p95=30ms"), goal="latency"), agent)
        driver = Driver(Watched(attachment.backend, attachment.profiler, attachment.clock), loop, window=5.0)
        records = [driver.step() for _ in range(windows)]
    return [(r.measurement, r.level) for r in records if r.measurement is not None]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_server_beside_a_steady_neighbour_is_tuned(seed: int) -> None:
    """One of two cores is taken all the time: at least 80 % of the windows are used, and the SLO is kept."""
    windows = life(f"sim://mlp?rate=200&foreign=1&seed={seed}", 30)
    used = [m for m, _ in windows if not m.disturbed]

    assert len(used) >= 0.8 * len(windows)
    assert all(m.latency_p95 < 0.030 for m in used[-10:])
    assert {neighbours(level) for _, level in windows if level is not None} == {1}


@pytest.mark.parametrize("neighbour", ["foreign=0.3", "foreign=1", "foreign=1&period=60"])
def test_idle_cores_that_others_use_cost_no_window(neighbour: str) -> None:
    """0.3 to 1 foreign cores with idle ones left, all the time or coming and going."""
    windows = life(f"sim://mlp?rate=200&seed=1&cores=4&{neighbour}", 30)

    assert [m.disturbed for m, _ in windows if m.disturbed] == []


def test_a_neighbour_that_comes_and_goes_costs_the_windows_of_its_moves() -> None:
    """Every 30 s: what is set aside is beside a move, and most windows on either side are used."""
    windows = life("sim://mlp?rate=200&foreign=1&period=60&seed=0", 40)
    aside = [m for m, _ in windows if m.disturbed]
    used = {neighbours(level) for m, level in windows if level is not None and not m.disturbed}

    assert 1 <= len(aside) <= 10
    assert all(any(m.start - 7 <= 30 * k <= m.end for k in range(12)) for m in aside[2:])
    assert used == {0, 1}

"""Assembly of windows, by examples computed by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tuner.adapters.backend import Counters
from tuner.knobs import Configuration
from tuner.profiler.gpu import GpuReading
from tuner.profiler.source import ClientSample, HostReading
from tuner.profiler.window import Limits, Reading, arrivals, assemble, dispersion, waiting_between

CONFIGURATION = Configuration(max_batch_size=4, instances=1)


def counters(**changes: Any) -> Counters:
    """Totals at time 100, all 0."""
    start = Counters(
        time=100.0,
        requests=0,
        failures=0,
        latency=0.0,
        queue=0.0,
        compute=0.0,
        inferences=0,
        batch_counts=np.zeros(3, np.int64),
        batch_seconds=np.zeros(3),
    )
    return replace(start, **changes)


def reading(host: HostReading | None = None, **changes: Any) -> Reading:
    return Reading(
        counters=counters(**changes), host=host or HostReading(time=100.0), configuration=CONFIGURATION
    )


END: dict[str, Any] = {
    "time": 110.0,
    "requests": 1000,
    "failures": 5,
    "latency": 20.0,
    "queue": 12.0,
    "compute": 6.0,
    "inferences": 1000,
    "batch_counts": np.array([0, 200, 100, 0, 150]),
    "batch_seconds": np.array([0, 1.0, 0.6, 0, 1.2]),
}


def sample(latency: list[float], failed: int = 0, start: float = 100.0, end: float = 110.0) -> ClientSample:
    count = len(latency)
    return ClientSample(
        intended=np.linspace(start, end, count, endpoint=False),
        latency=np.array(latency),
        failed=failed,
        lateness=np.full(count, 0.001),
        answered=np.array(latency),
    )


def test_server_alone_gives_means_batches_and_rate() -> None:
    """Everything is the difference of two readings, per request or per second."""
    window = assemble(reading(), reading(**END))

    assert (window.seconds, window.requests, window.failures) == (10.0, 1000, 5)
    assert window.arrival_rate == pytest.approx(100.5)
    assert window.latency_mean == pytest.approx(0.020)
    assert window.queue_mean == pytest.approx(0.012)
    assert window.compute_mean == pytest.approx(0.006)
    assert window.batches == {1: 200, 2: 100, 4: 150}
    assert window.batch_mean == pytest.approx(1000 / 450)
    assert window.quantiles_from == "none"
    assert np.isnan(window.latency_p95)
    assert window.disturbed == ()


def test_profile_is_fitted_to_the_window_alone() -> None:
    """l(1) = 5, l(2) = 6 and l(4) = 8 ms are alpha = 1 ms and beta = 4 ms, whatever was counted before."""
    earlier: dict[str, Any] = {"batch_counts": np.array([0, 7, 9]), "batch_seconds": np.array([0, 9.0, 9.0])}
    later = {
        **END,
        "batch_counts": END["batch_counts"] + np.array([0, 7, 9, 0, 0]),
        "batch_seconds": END["batch_seconds"] + np.array([0, 9.0, 9.0, 0, 0]),
    }
    profile = assemble(reading(**earlier), reading(**later)).profile

    assert profile is not None
    assert (profile.alpha, profile.beta) == pytest.approx((0.001, 0.004))
    assert profile.residual == pytest.approx(0, abs=1e-9)


def test_growing_queue_counts_as_load() -> None:
    """Arrivals are answers, failures, and what waits more than before."""
    window = assemble(reading(pending=20.0), reading(**END, pending=220.0))

    assert window.arrival_rate == pytest.approx((1000 + 5 + 200) / 10)


def test_quantiles_of_the_server_are_taken_without_clients() -> None:
    """The server's own quantiles are used as they are at the end of the window."""
    window = assemble(reading(), reading(**END, quantiles={0.5: 0.01, 0.95: 0.03, 0.99: 0.05}))

    assert (window.latency_p50, window.latency_p95, window.latency_p99) == (0.01, 0.03, 0.05)
    assert window.quantiles_from == "server"


def test_quantiles_are_mixed_only_where_the_server_gives_them() -> None:
    """After a change the server's quantiles are mixed for a while; the clients' never are."""
    end = reading(**END, quantiles={0.95: 0.03})

    assert assemble(reading(), end, mixed=True).quantiles_mixed
    assert not assemble(reading(), end, mixed=True, clients=sample([0.01] * 1000)).quantiles_mixed


def test_clients_latency_and_rate_count() -> None:
    """With clients the quantiles are theirs, and the load is what they meant to send."""
    latency = np.linspace(0.0, 0.1, 991).tolist()
    window = assemble(reading(), reading(**END), clients=sample(latency))

    assert window.arrival_rate == pytest.approx(99.1)
    assert window.latency_p95 == pytest.approx(0.095)
    assert window.latency_mean == pytest.approx(0.05)
    assert window.lateness_p99 == pytest.approx(0.001)
    assert window.quantiles_from == "client"
    assert window.burstiness == pytest.approx(0, abs=0.2)


def test_others_traffic_is_part_of_the_load() -> None:
    """If the server sees clearly more than our clients sent, its count is the load."""
    window = assemble(reading(), reading(**END), clients=sample([0.01] * 500))

    assert window.arrival_rate == pytest.approx(100.5)
    assert window.timed == 500
    assert assemble(reading(), reading(**END), clients=sample([0.01] * 1000)).timed == math.inf


def test_our_own_backlog_is_no_traffic_of_others() -> None:
    """A server that does not say how many wait counts what an overload before has left, too."""
    backlog = replace(sample([0.01] * 500), answered=np.full(995, 2.0))

    window = assemble(reading(), reading(**END), clients=backlog)
    assert (window.arrival_rate, window.timed) == (50.0, math.inf)

    counted = assemble(reading(pending=0.0), reading(**END, pending=0.0), clients=backlog)
    assert (counted.arrival_rate, counted.timed) == (100.5, 500)


def test_burstiness_beside_others_is_that_of_all() -> None:
    """Our own requests come evenly; those of the others came in the second half of the window."""
    history = [counters(time=100.0 + i, requests=0 if i < 6 else 200 * (i - 5)) for i in range(11)]
    window = assemble(reading(), reading(**END), clients=sample([0.01] * 100), came=[arrivals(history)])

    assert window.burstiness > 100


def test_unanswered_requests_count_with_the_longest_latency() -> None:
    """10 % lost requests put the p95 to the whole time since the window began."""
    lost = [0.01] * 900 + [np.nan] * 100
    window = assemble(reading(), reading(**END), clients=sample(lost, failed=60), sampled_at=111.0)

    assert window.latency_p50 == pytest.approx(0.01)
    assert window.latency_p95 == pytest.approx(11.0)
    assert window.failures == 60
    assert (window.cut("p50"), window.cut("p95")) == (False, True)
    assert (window.text("p50"), window.text("p95")) == ("10ms", "over 11s")


def test_the_network_is_what_the_clients_waited_beyond_the_server() -> None:
    """It is known only where both count the same requests, and all were answered."""
    end = reading(**END)  # 20 ms per request within the server

    assert assemble(reading(), end, clients=sample([0.025] * 1000)).network_mean == pytest.approx(0.005)
    assert assemble(reading(), end, clients=sample([0.019] * 1000)).network_mean == 0
    assert np.isnan(assemble(reading(), end, clients=sample([0.025] * 500)).network_mean)
    assert np.isnan(assemble(reading(), end, clients=sample([0.025] * 999 + [np.nan])).network_mean)
    assert np.isnan(assemble(reading(), end).network_mean)
    unknown = replace(sample([0.025] * 1000), answered=None)
    assert np.isnan(assemble(reading(), end, clients=unknown).network_mean)


def test_a_growing_queue_is_no_network() -> None:
    """Of 100 requests/s 80 are answered: those sent in the window take longer than those answered in it."""
    clients = sample([0.0] * 1000)
    done = 100.0 + np.arange(1, 1001) / 80
    inside = done - clients.intended
    in_time = done < 110.0
    clients = replace(clients, latency=inside + 0.005, answered=inside[in_time] + 0.005)
    end = reading(**{**END, "requests": int(in_time.sum()), "latency": float(inside[in_time].sum())})

    window = assemble(reading(), end, clients=clients)

    assert window.network_mean == pytest.approx(0.005)
    assert window.latency_mean > inside[in_time].mean() + 0.2


def test_processors_are_divided_among_server_us_and_foreign() -> None:
    """Foreign is what neither the server nor we used."""
    before = HostReading(time=100.0, server=5.0, own=1.0, total=50.0)
    after = HostReading(time=110.0, server=17.0, own=2.0, total=65.0, gpu=GpuReading(share=0.5, memory=7.0))
    window = assemble(reading(before), reading(after, **END))

    assert window.cpu == pytest.approx(1.2)
    assert window.foreign_cpu == pytest.approx(0.2)
    assert (window.gpu, window.gpu_memory) == (0.5, 7.0)
    assert window.disturbed == ()


def test_the_power_is_that_of_the_same_gpus() -> None:
    """What another one has used since its driver was loaded is no power of the window."""
    ends = {energy: GpuReading(share=0.5, energy=energy, devices=(0,)) for energy in (1000.0, 3000.0)}
    before = HostReading(time=100.0, gpu=ends[1000.0])

    for devices, power in (((0,), 200.0), ((0, 1), np.nan), ((1,), np.nan)):
        after = HostReading(time=110.0, gpu=replace(ends[3000.0], devices=devices))
        window = assemble(reading(before), reading(after, **END))
        assert window.gpu_power == pytest.approx(power, nan_ok=True)


def test_unknown_processors_stay_unknown() -> None:
    """A remote server's use is NaN, not 0, and disturbs nothing."""
    window = assemble(reading(), reading(HostReading(time=110.0), **END))

    assert np.isnan([window.cpu, window.foreign_cpu]).all()
    assert window.disturbed == ()


def test_each_disturbance_is_named() -> None:
    """Foreign load, reload, another's change, silence and a late generator all mark the window."""
    before = HostReading(time=100.0, server=0.0, own=0.0, total=0.0)
    after = HostReading(time=110.0, server=0.0, own=0.0, total=9.0)
    late = replace(sample([0.01] * 1000), lateness=np.full(1000, 0.05))
    end = replace(reading(after, time=110.0, restarts=1), configuration=Configuration(max_batch_size=8))
    window = assemble(reading(before), end, clients=late, limits=Limits(foreign=0.25))

    assert [reason.split(" (")[0] for reason in window.disturbed] == [
        "no request was answered",
        "foreign processes used 0.90 cores",
        "the model was reloaded or the server restarted during the window",
        "somebody else changed the configuration during the window",
        "our own load was sent 50 ms late",
    ]


def test_lateness_counts_beside_the_latency() -> None:
    """30 ms late is too much where requests take 10 ms, and does not show where they take 5 s."""
    quick, slow = (
        assemble(
            reading(), reading(**END), clients=replace(sample([seconds] * 1000), lateness=np.full(1000, 0.03))
        )
        for seconds in (0.01, 5.0)
    )

    assert quick.disturbed == ("our own load was sent 30 ms late (limit 20 ms)",)
    assert slow.disturbed == ()


def test_silent_window_has_no_latency() -> None:
    """Without requests means are NaN and nothing is divided by 0."""
    window = assemble(reading(), reading(time=110.0), clients=sample([]))

    assert window.arrival_rate == 0
    assert np.isnan([window.latency_mean, window.latency_p95, window.batch_mean]).all()
    assert window.profile is None
    assert window.quantiles_from == "none"


def test_burstiness_comes_from_readings_where_there_are_no_clients() -> None:
    """Ten readings with 0 and 20 arrivals in turn: variance 111, mean 10."""
    totals = np.cumsum([0, *[0, 20] * 5])
    history = [counters(time=100.0 + i, requests=int(n)) for i, n in enumerate(totals)]
    window = assemble(reading(), reading(**END), came=[arrivals(history)])

    assert window.burstiness == pytest.approx(10 * 100 / 10 / 9)


def test_load_that_moves_between_windows_is_no_burst() -> None:
    """Four intervals in each of three windows, alike within each: no dispersion, though the rate moves."""
    came = [
        arrivals([counters(time=10.0 * k + i, requests=rate * i) for i in range(5)])
        for k, rate in enumerate((10, 100, 50))
    ]

    assert np.isnan(assemble(reading(), reading(**END), came=came[:2]).burstiness)
    assert assemble(reading(), reading(**END), came=came).burstiness == 0


def test_dispersion_allows_for_unequal_intervals() -> None:
    """Counts in proportion to the intervals' lengths have no dispersion; too few have none known."""
    seconds = np.array([1.0, 2.0] * 5)

    assert dispersion([(seconds * 10, seconds)]) == pytest.approx(0)
    assert np.isnan(dispersion([(seconds[:4] * 10, seconds[:4])]))
    assert np.isnan(dispersion([(seconds * 0, seconds)]))


@pytest.mark.parametrize(
    ("answered", "latency", "then", "waited"),
    [
        (200, 34.0, {}, (30.0, 200)),  # 4 s are usual: 20 ms each
        (200, 1.0, {}, (0.0, 200)),  # quicker than usual, which makes up for nothing
        (200, 34.0, {"latency": 170.0}, (0.0, 200)),  # as slow as afterwards: the configuration is slow
        (0, 0.0, {}, (200 - 3 * math.sqrt(200), 200)),  # each 1 s, but for those whom chance keeps away
        (0, 0.0, {"requests": 100}, (20 - 3 * math.sqrt(20), 20)),  # by the lesser rate, 10/s
        (150, 3.0, {"requests": 100}, (0.0, 150)),  # more were answered than came by that rate
    ],
)
def test_a_change_made_those_wait_who_were_answered_later_than_usual_or_not_at_all(
    answered: int, latency: float, then: dict[str, Any], waited: tuple[float, int]
) -> None:
    """It took 2 s, between two windows of 10 s, in each of which come 100 requests/s that take 20 ms."""
    window = {"requests": 1000, "latency": 20.0}
    left = {"time": 110.0, **window}
    back = {"time": 112.0, "requests": 1000 + answered, "latency": 20.0 + latency}
    end = {"time": 122.0, **{name: back[name] + (window | then)[name] for name in window}}

    found = waiting_between((counters(), counters(**left)), (counters(**back), counters(**end)))

    assert found == pytest.approx(waited)


def test_a_few_requests_of_ours_show_no_bursts() -> None:
    """Nothing is divided into intervals for them."""
    few = assemble(reading(), reading(**{**END, "requests": 5}), clients=sample([0.01] * 5))

    assert np.isnan(few.burstiness)

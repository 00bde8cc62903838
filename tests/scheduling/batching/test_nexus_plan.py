"""Plans of Nexus: which backend hosts which sessions, as in the paper and on random clusters."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tests.scheduling.batching.test_nexus import session
from tuner.planning.packing.load import load_arrays
from tuner.planning.packing.squishy import pack_arrays
from tuner.scheduling.batching.nexus_plan import Hosted, loads_of, make_placement, raised_batches
from tuner.scheduling.cluster import ClusterSpec, Delays, SessionSpec, linear_latency


def table(slo: float, **latency: float) -> SessionSpec:
    """A session with latencies (ms) for some batch sizes, `b4=50`, which hold for smaller ones, too."""
    points = {int(name[1:]): value / 1000 for name, value in latency.items()}
    sizes = np.arange(max(points) + 1)
    latencies = np.array([0.0] + [min(v for b, v in points.items() if b >= size) for size in sizes[1:]])
    return SessionSpec(name="m", slo=slo, latency=latencies[None])


def test_one_session_is_everywhere() -> None:
    """ResNet50 of Symphony's Table 4: batches of 7 on every accelerator, whatever the rate."""
    spec = ClusterSpec(
        sessions=[SessionSpec(name="r", slo=0.025, latency=linear_latency(1.053e-3, 5.072e-3, 0.025)[None])],
        kinds=[0] * 8,
    )

    for rates in (None, [4501.0], [1.0]):
        plan = make_placement(spec, rates)

        assert [[share.batch for share in row] for row in plan.backends] == [[7]] * 8
        assert len({row[0].rate for row in plan.backends}) == 1


def test_saturated_accelerators_of_the_paper() -> None:
    """Nexus, Table 2: an accelerator of its own serves 160 requests/s of A, 128 of B, 128 of C."""
    a = table(0.2, b4=50, b8=75, b16=100)
    b = table(0.25, b4=50, b8=90, b16=125)
    c = table(0.25, b4=60, b8=95, b16=125)
    spec = ClusterSpec(sessions=[a, b, c], kinds=[0] * 6)

    saturated = make_placement(spec, [320.0, 256.0, 256.0])

    peaks = [(0, 160.0), (0, 160.0), (1, 128.0), (1, 128.0), (2, 128.0), (2, 128.0)]
    assert saturated.backends == tuple((Hosted(index, 16, peak),) for index, peak in peaks)


def plans() -> list[tuple[ClusterSpec, list[float]]]:
    rng = np.random.default_rng(5)
    found = []
    for _ in range(20):
        count, accelerators = int(rng.integers(2, 9)), int(rng.integers(1, 12))
        sessions = [
            SessionSpec(name=f"{i}", slo=0.1, latency=linear_latency(a, b, 0.1)[None].repeat(2, axis=0))
            for i, (a, b) in enumerate(rng.uniform(0.001, 0.01, (count, 2)))
        ]
        spec = ClusterSpec(sessions=sessions, kinds=rng.integers(0, 2, accelerators).tolist())
        found.append((spec, rng.uniform(0, 300, count).tolist()))
    return found


@pytest.mark.parametrize(("spec", "rates"), plans())
def test_plans_are_feasible(spec: ClusterSpec, rates: list[float]) -> None:
    """All sessions are hosted in proportion to their rates; none gets more than it can do."""
    plan = make_placement(spec, rates)

    shares = [share for row in plan.backends for share in row]
    assert len(plan.backends) == len(spec.kinds)
    assert all(plan.backends)
    assert {share.session for share in shares} == set(range(len(spec.sessions)))
    for kind in set(spec.kinds):
        rows = [row for row, each in zip(plan.backends, spec.kinds, strict=True) if each == kind]
        total = np.zeros(len(rates))
        for row in rows:
            for share in row:
                total[share.session] += share.rate
        factor = total / np.array(rates)
        assert factor == pytest.approx(factor[0], rel=1e-6)
        if any(len(row) < len(rates) for row in rows):
            for row in rows:
                latencies = [spec.sessions[s.session].latency[kind, s.batch] for s in row]
                assert max(latencies) <= 0.05 + 1e-9
                busy = sum(s.rate * each / s.batch for s, each in zip(row, latencies, strict=True))
                assert busy <= 1 + 1e-6


def test_spare_accelerators_are_used() -> None:
    """Equal sessions on twice as many accelerators have two each; nobody stays without work."""
    sessions = [session(20.0), session(20.0)]

    plan = make_placement(ClusterSpec(sessions=sessions, kinds=[0] * 4), [0.01, 0.01])

    assert Counter(share.session for row in plan.backends for share in row) == {0: 2, 1: 2}


def test_accelerators_that_are_left_over_repeat_the_fullest() -> None:
    """No two sessions fit on one, as 3 l(1) > SLO: three fill one each, the last half of one; two are left.

    At any higher rate each of the three would need another one.
    """
    sessions = [SessionSpec(name="m", slo=0.025, latency=np.array([[0.0, 0.01]])) for _ in range(4)]

    plan = make_placement(ClusterSpec(sessions=sessions, kinds=[0] * 6), [100.0, 100.0, 100.0, 50.0])

    shares = [share for (share,) in plan.backends]
    assert Counter(share.session for share in shares) == {0: 2, 1: 2, 2: 1, 3: 1}
    assert [share.rate for share in shares] == pytest.approx([50, 50, 50, 50, 100, 50], rel=2e-3)


@pytest.mark.parametrize("bursts", [0.0, 1.5])
@pytest.mark.parametrize(("spec", "rates"), plans()[:10])
def test_plans_are_for_the_largest_factor_that_fits(
    spec: ClusterSpec, rates: list[float], bursts: float
) -> None:
    """On each kind, the rates times a factor, with room for bursts, fit; 0.3 % more do not."""
    plan = make_placement(spec, rates, bursts=bursts)

    for kind in set(spec.kinds):
        loads = loads_of(spec, kind)
        rows = [row for row, each in zip(plan.backends, spec.kinds, strict=True) if each == kind]
        planned = np.zeros(len(rates))
        for row in rows:
            for share in row:
                planned[share.session] += share.rate
        room = bursts / np.sqrt(
            [load.budget / 2 for load in loads]
        )  # standard deviations in half of its time
        served = ((np.sqrt(room**2 + 4 * planned) - room) / 2) ** 2  # served + room sqrt(served) = planned
        if pack_arrays(load_arrays(loads, rates=(1e-6 * served).tolist()), limit=len(rows)) is None:
            continue  # no factor fits
        assert served / rates == pytest.approx(served[0] / rates[0], rel=1e-6)
        assert pack_arrays(load_arrays(loads, rates=(0.999 * planned).tolist()), limit=len(rows)) is not None
        more = 1.003 * served
        assert (
            pack_arrays(load_arrays(loads, rates=(more + room * np.sqrt(more)).tolist()), limit=len(rows))
            is None
        )


def unlike(*slos: float) -> list[SessionSpec]:
    """Sessions of 5 ms and more on kind 0, 62 ms and more on kind 1."""
    sizes = np.arange(9)
    latency = np.where(sizes > 0, [sizes + 4.0, 2.0 * sizes + 60], 0.0) / 1000
    return [SessionSpec(name=f"{number}", slo=slo, latency=latency) for number, slo in enumerate(slos)]


def test_a_kind_hosts_no_session_that_it_cannot_serve() -> None:
    """At 50 ms accelerators of kind 1 stay empty, whether there are rates or not."""
    for count, rates in ((1, None), (2, None), (2, [300.0, 200.0]), (2, [0.0, 0.0])):
        spec = ClusterSpec(sessions=unlike(*[0.05] * count), kinds=[1, 0, 1])
        own = make_placement(ClusterSpec(sessions=spec.sessions, kinds=[0]), rates)

        plan = make_placement(spec, rates)

        assert plan.backends == ((), own.backends[0], ())


@pytest.mark.parametrize("delay", ["response", "control", "data"])
def test_plans_leave_room_for_the_network(delay: str) -> None:
    """A request of 62 ms waits for another one: of 126 ms the network must not take more than two."""
    for network, hosted in ((0.001, True), (0.003, False)):
        delays = Delays(**{delay: network})
        spec = ClusterSpec(sessions=unlike(0.126, 0.126), kinds=[0, 1], delays=delays)

        plan = make_placement(spec, [300.0, 300.0])

        assert [bool(row) for row in plan.backends] == [True, hosted]


def test_equal_rates_are_assumed_of_too_many_sessions_without_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every session everywhere would be more queues than a plan may have."""
    spec = ClusterSpec(sessions=unlike(0.05, 0.05), kinds=[0, 0])
    everywhere = make_placement(spec)

    monkeypatch.setattr("tuner.scheduling.batching.nexus_plan.EVERYWHERE", 3)

    assert make_placement(spec) == make_placement(spec, [1.0, 1.0]) != everywhere


def test_unlike_kinds_have_parts_in_proportion_to_what_they_could_do() -> None:
    """Of session 0 kind 1 could do twice as much as kind 0, 2 : 1; of session 1, slower there, 2/3, 2 : 3."""
    sizes = np.arange(9)
    line = np.where(sizes > 0, sizes + 4.0, 0.0) * 1e-3
    sessions = [
        SessionSpec(name=name, slo=1.0, latency=np.array([line, slow * line]))
        for name, slow in (("alike", 1.0), ("slower", 3.0))
    ]
    spec = ClusterSpec(sessions=sessions, kinds=[0, 1, 1])

    plan = make_placement(spec, [100.0, 100.0])

    first, second = (
        [
            sum(
                share.rate
                for row, each in zip(plan.backends, spec.kinds, strict=True)
                if each == kind
                for share in row
                if share.session == number
            )
            for number in (0, 1)
        ]
        for kind in (0, 1)
    )
    assert first[0] / first[1] == pytest.approx((1 / 3) / (3 / 5))
    assert second[0] / second[1] == pytest.approx((2 / 3) / (2 / 5))


def test_a_session_without_requests_has_no_accelerator() -> None:
    """The other has all of its own kind; the kind that could serve only the one without stays empty."""
    for slos, hosted in (((0.5, 0.5), [{0}, {0}, {0}]), ((0.05, 0.5), [{0}, {0}, set()])):
        spec = ClusterSpec(sessions=unlike(*slos), kinds=[0, 0, 1])

        plan = make_placement(spec, [1000.0, 0.0])

        assert [{share.session for share in row} for row in plan.backends] == hosted


def test_a_kind_hosts_the_sessions_that_it_can_serve() -> None:
    """The session with an SLO of 50 ms is on kind 0 only; of the other each kind has its part."""
    spec = ClusterSpec(sessions=unlike(0.05, 0.5), kinds=[0, 1, 1])

    for rates in (None, [300.0, 400.0]):
        plan = make_placement(spec, rates)

        hosted = [{share.session for share in row} for row in plan.backends]
        assert hosted == [{0, 1}, {1}, {1}]


def test_a_session_that_no_kind_can_serve_is_hosted() -> None:
    """With an SLO of 4 ms it has parts in proportion to the rates with batches of one, as before."""
    spec = ClusterSpec(sessions=unlike(0.004, 0.5), kinds=[0, 1])

    plan = make_placement(spec, [1.0, 1.0])

    assert [[share.session for share in row] for row in plan.backends] == [[0, 1], [0, 1]]
    fast, slow = (row[0].rate for row in plan.backends)
    assert fast / slow == pytest.approx(62 / 5)


def test_batches_are_raised_as_far_as_the_slo_allows_if_the_others_keep_theirs() -> None:
    """Of 40 ms 5 are the other's: 2 l(13) = 34 <= 35. What the plan has beyond that, it keeps."""
    line = np.append(0.0, np.arange(1, 31) + 4.0)[None] * 1e-3
    short, long = (SessionSpec(name="m", slo=slo, latency=line) for slo in (0.04, 0.06))

    assert raised_batches([short, long], 0, [(0, 2), (1, 1)]) == [13, 23]  # 2 l(23) = 54 <= 60 - l(2)
    assert raised_batches([short, long], 0, [(0, 15), (1, 1)]) == [15, 16]  # 2 l(16) = 40 <= 60 - l(15)

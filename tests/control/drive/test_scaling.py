"""How many servers a target should have, from its windows or from its dispatcher."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.builders import SPACE, configuration, measurement
from tuner.control.drive.scaling import SHARES, TargetScaling, late_share
from tuner.errors import Unreachable
from tuner.knobs import KnobSpace, Role
from tuner.measurement import UNANSWERED, Measurement
from tuner.objective import Slo
from tuner.planning.autoscale import ScalingAdvice

NO_INSTANCES = KnobSpace([SPACE.knobs[0]])
SLO = Slo(statistic="p95", latency=0.030)
ALONE: Any = SimpleNamespace()


def shown(busy: float, scale: float = 1.0, **more: Any) -> Measurement:
    """10 s of 1,000 requests on two instances; at a scale of 1 the median is 5 ms, and p95 20 ms."""
    return replace(
        measurement(),
        start=0.0,
        end=10.0,
        configuration=configuration(instances=2.0),
        requests=1000,
        failures=0,
        latency_mean=0.008 * scale,
        latency_p50=0.005 * scale,
        latency_p95=0.020 * scale,
        latency_p99=0.025 * scale,
        busy_instances=busy,
        **more,
    )


def desired(windows: list[Measurement], servers: int = 1) -> int | None:
    """What is advised after these windows."""
    scaling, backend = TargetScaling(SLO, SPACE, 4.0), SimpleNamespace(replicas=servers)
    advice = [scaling.advise(backend, one) for one in windows]
    return advice[-1][""].desired if advice[-1] else None


@pytest.mark.parametrize("statistic", SHARES)
def test_the_late_share_agrees_with_the_verdict(statistic: str) -> None:
    """It is above what the SLO allows exactly when the window breaks the SLO."""
    window = shown(1.0)
    latency = window.latency(statistic)

    assert late_share(window, Slo(statistic=statistic, latency=latency * 1.001)) <= SHARES[statistic]
    assert late_share(window, Slo(statistic=statistic, latency=latency * 0.999)) > SHARES[statistic]
    assert late_share(window, Slo(statistic=statistic, latency=latency / 1e6)) == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("statistic", SHARES)
def test_an_slo_that_is_just_missed_asks_for_one_more(statistic: str) -> None:
    """However many requests may be later than it, as more than a third may where it bounds the mean."""
    windows = [shown(8.0)] * 3
    slo = Slo(statistic=statistic, latency=0.99 * windows[0].latency(statistic))
    scaling, backend = TargetScaling(slo, SPACE, 4.0), SimpleNamespace(replicas=10)
    advice = [scaling.advise(backend, one) for one in windows]

    assert advice[-1][""].desired == 11


def test_no_failure_is_allowed() -> None:
    """Half of the requests may be later than a bound of the median; of those that fail all are too many."""
    slo = Slo(statistic="p50", latency=0.030)
    scaling, backend = TargetScaling(slo, SPACE, 4.0), SimpleNamespace(replicas=10)
    windows = [replace(shown(8.0), requests=400, failures=600)] * 3
    advice = [scaling.advise(backend, one) for one in windows]

    assert advice[-1][""].desired == 20


@pytest.mark.parametrize(
    ("busy", "scale", "servers", "expected"),
    [
        (1.0, 1.0, 1, 1),
        (4.0, 1.0, 4, 3),  # half busy: 4 * 0.5 / 0.7
        (0.0, 1.0, 4, 1),
        (6.0, 1.0, 4, 4),
        (8.0, 1.6, 4, 5),  # a little late
        (8.0, 100.0, 4, 8),  # all late: as many again, and not more
    ],
)
def test_servers_by_their_own_windows(busy: float, scale: float, servers: int, expected: int) -> None:
    """By the share that is late, and else by the share of the time that instances are busy."""
    assert desired([shown(busy, scale)] * 3, servers) == expected


def test_advice_waits_until_enough_was_seen() -> None:
    """And what disturbed windows show is not used, nor windows that lack the busy time."""
    late = shown(2.0, 100.0)

    assert desired([late]) == 1
    assert desired([late, late]) == 2
    assert desired([late, replace(late, disturbed=("reloading",))]) == 1
    for untrue in ({"quantiles_mixed": True}, {"latency_p95": 5000.0}):
        assert desired([shown(1.0), replace(shown(8.0, 100.0), **untrue)], 1) == 1
    assert desired([replace(late, busy_instances=math.nan)]) is None
    assert TargetScaling(SLO, NO_INSTANCES, 4.0).advise(ALONE, shown(2.0)) == {}


def without_answers(failures: int = 0, rate: float = 0.0) -> Measurement:
    """A window in which no request was answered."""
    latencies = dict.fromkeys(("latency_mean", "latency_p50", "latency_p95", "latency_p99"), math.nan)
    silent = replace(shown(0.0), **latencies, disturbed=(UNANSWERED,))  # type: ignore[arg-type]
    return replace(silent, requests=0, failures=failures, arrival_rate=rate)


def test_a_window_without_requests_is_idle() -> None:
    """And one in which all failed is bad; one whose requests still wait shows neither."""
    busy = shown(8.0)

    assert desired([busy] * 3, 4) == 4
    assert desired([busy] + [without_answers()] * 6, 4) == 1
    assert desired([busy] + [without_answers(failures=500, rate=50.0)] * 6, 4) == 8
    assert desired([busy] * 3 + [without_answers(rate=50.0)] * 6, 4) == 4


def test_windows_without_answers_alone_give_no_advice() -> None:
    """Those with requests may lack the busy time: then what was idle once would be idle for good."""
    unseen = replace(shown(8.0), busy_instances=math.nan)

    assert desired([without_answers()] * 6 + [unseen] * 6, 4) is None


def test_an_instance_for_each_core_of_an_unknown_machine() -> None:
    """Nobody knows how busy that is, so there is no advice."""
    threads = KnobSpace([SPACE.knobs[0]], fixed={Role.PARALLELISM: 0.0})

    assert TargetScaling(SLO, threads, 4.0).advise(ALONE, shown(2.0))
    assert TargetScaling(SLO, threads, math.nan).advise(ALONE, shown(2.0)) == {}


def test_a_target_that_was_not_measured_has_no_advice() -> None:
    """An autoscaler then changes nothing, instead of following what is long past."""
    scaling = TargetScaling(SLO, SPACE, 4.0)
    assert scaling.advise(ALONE, shown(1.0))

    assert scaling.advise(ALONE, None) == {}


def test_failed_requests_are_bad() -> None:
    """However fast the others are."""
    assert desired([shown(2.0) for _ in range(3)]) == 1
    assert desired([replace(shown(2.0), failures=200) for _ in range(3)]) == 2


def test_requests_that_fail_with_any_number_of_servers_ask_for_none() -> None:
    """Such as those in a broken model. Where many are such, idle time frees none either; others count."""
    broken = replace(shown(2.0), failures=200, beyond_servers=200)

    assert desired([broken] * 3) == 1
    assert desired([replace(broken, failures=400)] * 3) == 2
    assert desired([shown(1.0)] * 3, 4) in {1, 2, 3}
    assert desired([replace(shown(1.0), failures=300, beyond_servers=300)] * 3, 4) in {1, 2, 3}
    assert desired([replace(shown(1.0), failures=800, beyond_servers=800)] * 3, 4) == 4
    assert desired([shown(8.0)] + [replace(without_answers(500, 50.0), beyond_servers=500)] * 6, 4) == 4


def test_a_dispatcher_advises_itself() -> None:
    """It counts what is dropped and when instances are idle; if it does not answer, there is no advice."""
    advice = {"m": ScalingAdvice(accelerators=2, desired=5, reason="x")}

    def away() -> Mapping[str, ScalingAdvice]:
        raise Unreachable("no")

    scaling = TargetScaling(SLO, SPACE, 4.0)
    assert scaling.advise(SimpleNamespace(scaling=lambda: advice), shown(1.0)) == advice
    assert scaling.advise(SimpleNamespace(scaling=away), shown(1.0)) == {}

"""What windows prove: how surely each kept the SLO, by its requests, and what follows from several."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from tests.builders import OBJECTIVE, measurement
from tuner.control.decide.evidence import (
    BETWEEN,
    ConfigurationRecord,
    FailedRequests,
    Spread,
    margin,
    probability_kept,
)
from tuner.measurement import Measurement
from tuner.objective import Slo

NORMAL = NormalDist()


def test_requests_of_several_rows_do_not_make_each_other_wait() -> None:
    """A hundred that were executed one by one are as sure as a hundred of one row, and no less in batches."""
    slow = measurement(0.036, rate=20.0)
    one = margin(replace(slow, batch_mean=1.0, request_rows=1.0), OBJECTIVE.slo)
    several = margin(replace(slow, batch_mean=16.0, request_rows=16.0), OBJECTIVE.slo)
    split = margin(replace(slow, batch_mean=8.0, request_rows=16.0), OBJECTIVE.slo)
    uncounted = margin(replace(slow, batch_mean=4.0), OBJECTIVE.slo)
    by_four = margin(replace(slow, batch_mean=64.0, request_rows=16.0), OBJECTIVE.slo)

    assert several == split == one
    assert by_four.error == pytest.approx(uncounted.error)
    assert by_four.error > one.error


def lognormal(deviation: float, *, requests: int, quantiles: bool = True) -> Measurement:
    """A window with the figures of lognormal latencies, whose median is 20 ms."""
    median = 0.020
    logs = {f"latency_p{n}": deviation * NORMAL.inv_cdf(n / 100) for n in (50, 95, 99)}
    shown: dict[str, Any] = {name: median * math.exp(log) for name, log in logs.items()}
    window = replace(measurement(), requests=requests, latency_mean=median * math.exp(deviation**2 / 2))
    return replace(window, **(shown if quantiles else dict.fromkeys(shown, math.nan)))


@pytest.mark.parametrize("statistic", ["mean", "p50", "p95", "p99"])
def test_the_error_of_a_latency_is_that_of_requests_drawn_again_and_again(statistic: str) -> None:
    """Beside what any two windows differ by, however many requests they have."""
    drawn = np.random.default_rng(3).lognormal(math.log(0.020), 0.6, (2000, 400))
    each = drawn.mean(axis=1) if statistic == "mean" else np.percentile(drawn, int(statistic[1:]), axis=1)

    error = margin(lognormal(0.6, requests=400), Slo(statistic=statistic, latency=0.050)).error

    assert math.sqrt(error**2 - BETWEEN**2) == pytest.approx(float(np.log(each).std()), rel=0.1)


def test_a_window_of_very_many_requests_is_not_surer_than_windows_are_alike() -> None:
    """A twentieth below the bound is one standard error, and five windows of six would keep it."""
    slo = Slo(statistic="p95", latency=0.020 / math.exp(-0.05))
    many = replace(measurement(0.020), requests=10**9)

    assert probability_kept(many, slo) == pytest.approx(NORMAL.cdf(1.0), abs=0.001)


def test_where_no_quantile_shows_the_spread_latencies_differ_by_half_a_logarithm() -> None:
    """A server that counts only the sum of its latencies has a mean all the same."""
    slo = Slo(statistic="mean", latency=0.050)

    shown = margin(lognormal(0.5, requests=100), slo).error
    assert margin(lognormal(0.5, requests=100, quantiles=False), slo).error == pytest.approx(shown)


def test_a_window_with_a_failed_request_surely_broke_the_slo() -> None:
    """However fast the others were answered."""
    assert probability_kept(measurement(0.001), OBJECTIVE.slo) > 0.99
    assert probability_kept(measurement(0.001, failures=1), OBJECTIVE.slo) == 0.0


@pytest.mark.parametrize(("failed", "more"), [(0, False), (4, False), (5, True), (1000, True)])
def test_chance_explains_failures_that_it_brings_about_once_in_twenty_times(failed: int, more: bool) -> None:
    """Of a thousand requests none failed before: n or more fall among the next thousand with 1 / 2**n."""
    assert FailedRequests(failed, 1000).more_than(FailedRequests(0, 1000)) is more


def test_where_nobody_knows_what_fails_without_a_change_one_failure_is_enough() -> None:
    """There were no requests before. It may be of a single request."""
    assert FailedRequests(1, 1).more_than(FailedRequests())
    assert FailedRequests(1, 1000).more_than(FailedRequests())
    assert not FailedRequests(0, 1000).more_than(FailedRequests())


def record_of(*costs: float, probability: float = 1.0) -> ConfigurationRecord:
    """The record of a configuration after windows of these costs."""
    record = ConfigurationRecord()
    for cost in costs:
        record.add(cost, probability)
    return record


def test_the_spread_is_that_about_a_mean_which_scatters_too() -> None:
    """A fifth above one window before is two windows of a variance of 0.02; it weighs as the sixth window."""
    spread = Spread()

    spread.add(1.2, record_of(1.0))

    assert spread.deviation**2 == pytest.approx(0.1**2 + (0.02 - 0.1**2) / 6)


def test_one_spike_says_little_of_the_spread() -> None:
    """Overload may cost a hundred times as much: it counts as twice the cost."""
    spiked, doubled = Spread(), Spread()

    spiked.add(100.0, record_of(1.0))
    doubled.add(2.0, record_of(1.0))

    assert spiked == doubled


def test_a_server_that_becomes_noisier_is_noticed_however_long_it_was_steady() -> None:
    """After some tens of windows, of thousands."""
    spread, record = Spread(), record_of(*[1.0] * 30)
    for _ in range(3000):
        spread.add(1.0, record)
    assert spread.deviation < 0.01

    for _ in range(100):
        spread.add(1.2, record)

    assert spread.deviation == pytest.approx(0.2, rel=0.15)


def test_what_costs_nothing_yet_has_no_relative_deviation() -> None:
    """Such as a GPU that was idle; nor has what is seen for the first time."""
    spread = Spread()

    spread.add(0.5, record_of(0.0))
    spread.add(0.5, ConfigurationRecord())

    assert spread == Spread()


def test_old_windows_count_less_in_the_mean_cost() -> None:
    """Nine tenths as much with each that follows: the sum of their weights tends to ten."""
    record = record_of(1.0, 2.0)
    assert record.cost == pytest.approx((0.9 * 1.0 + 2.0) / 1.9)

    assert record_of(*[1.0] * 200).error(0.1) == pytest.approx(0.1 / math.sqrt(10.0))


def test_an_unsure_window_neither_proves_nor_disproves() -> None:
    """As many verdicts either way by a hair say less than one that is sure."""
    unsure = record_of(*[1.0] * 20, probability=0.495)
    sure = record_of(*[1.0] * 20, probability=0.0)

    assert unsure.good
    assert not sure.good
    assert sure.mostly_breaks


def test_what_is_known_at_worst_rests_on_more_than_one_window() -> None:
    """By Wilson's interval one of one keeps the SLO in half of all windows at least: that is 0.4 less than
    nine of ten. Ten of ten, as which many windows count, keep it in 10 / 11.
    """
    once, often = record_of(0.5), record_of(*[0.5] * 200)

    assert once.worst(0.1, broken=2.0) == pytest.approx(0.5 + 0.05 + (0.9 - 0.5) * 2.0)
    assert often.worst(0.1, broken=2.0) == pytest.approx(0.5 + 0.05 / math.sqrt(10.0))


def test_what_is_known_of_a_share_is_the_mirror_of_what_is_known_of_the_rest() -> None:
    """Four windows, one of which broke the SLO, or all others."""
    least, most = ConfigurationRecord(sure=4.0, sure_kept=3.0).share
    other_least, other_most = ConfigurationRecord(sure=4.0, sure_kept=1.0).share

    assert 0.0 < least < 0.75 < most < 1.0
    assert least == pytest.approx(1.0 - other_most)
    assert most == pytest.approx(1.0 - other_least)


@pytest.mark.parametrize(
    ("kept", "mostly"), [((True, False, False), True), ((False, True, True), False), ((False, False), True)]
)
def test_what_mostly_breaks_the_slo_breaks_it_in_half_of_its_windows(
    kept: tuple[bool, ...], mostly: bool
) -> None:
    """Old ones count less."""
    record = ConfigurationRecord()
    for one in kept:
        record.add(1.0, float(one))

    assert record.mostly_breaks is mostly

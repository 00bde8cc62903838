"""The schema of a window: quantities, the names that follow from them, and means that are made from sums."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from tests.builders import measurement
from tuner.knobs import Configuration
from tuner.measurement import QUANTILES, QUANTITIES, STATISTICS, Measurement, Work, latencies


def worked(**changes: Any) -> Measurement:
    """A window of ten seconds in which 100 requests were answered in 30 batches."""
    sums: dict[str, Any] = {
        "requests": 100, "queue": 0.5, "compute": 2.0, "inferences": 100,
        "batch_counts": np.array([0, 10, 0, 10, 0, 0, 10]),
        "batch_seconds": np.array([0, 0.1, 0, 0.2, 0, 0, 0.3]),
    }  # fmt: skip
    return Work(**sums | changes).measurement(
        start=20.0, end=30.0, configuration=Configuration(instances=1.0), arrival_rate=10.0
    )


def test_every_number_that_is_measured_is_a_quantity() -> None:
    """A field of a measurement that is none says when, with what, by whom or why."""
    others = {field.name for field in fields(Measurement)} - {quantity.field for quantity in QUANTITIES}

    assert others == {
        "start", "end", "configuration", "quantiles_from", "quantiles_mixed", "batches", "profile",
        "timed", "waited", "change_seconds", "change_requests", "restarted", "beyond_servers",
        "disturbed",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["field", "name", "report", "meaning"])
def test_names_of_quantities_are_different(name: str) -> None:
    """In each place where they stand side by side; statistics of the latency share a metric."""
    names = [getattr(quantity, name) for quantity in QUANTITIES]
    metrics = [(quantity.metric, quantity.statistic) for quantity in QUANTITIES]

    assert all(names)
    assert len({*names}) == len({*metrics}) == len(names)


def test_statistics_are_those_of_the_latency() -> None:
    """In the order in which they are given."""
    assert STATISTICS == ("mean", "p50", "p95", "p99")
    assert QUANTILES == {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    assert latencies(1, [2, 3, 4]) == {f"latency_{name}": n for n, name in enumerate(STATISTICS, 1)}


def test_figures_are_what_was_measured() -> None:
    """By name; what is counted is a whole number, and what nobody measured NaN."""
    found = measurement(0.02, failures=3).figures()

    assert [*found] == [quantity.name for quantity in QUANTITIES]
    assert (found["p95"], found["rate"], found["failures"]) == (0.02, 200.0, 3)
    assert isinstance(found["failures"], int)
    assert math.isnan(found["queue_mean"])


def test_means_are_made_from_sums() -> None:
    """Per request and per execution."""
    window = worked()

    assert (window.requests, window.queue_mean, window.compute_mean) == (100, 0.005, 0.02)
    assert window.batch_mean == pytest.approx(100 / 30)
    assert window.batches == {1: 10, 3: 10, 6: 10}
    assert window.profile is not None
    assert window.profile.executions == 30


def test_rows_of_a_request_make_it_comparable_with_batches() -> None:
    """One where nearly every request has one, or nobody counts them; a cache executes fewer."""
    sent, cached, late = worked(requests=20), worked(requests=200), worked(requests=98)
    uncounted = worked(inferences=0)

    assert (sent.request_rows, sent.rows) == (5.0, 5.0)
    assert (cached.request_rows, cached.rows) == (0.5, 1.0)
    assert late.request_rows > late.rows == 1.0
    assert math.isnan(uncounted.request_rows)
    assert math.isnan(uncounted.batch_mean)
    assert uncounted.rows == 1.0


def test_busy_instances_are_executions_at_a_time() -> None:
    """Little's law: time in executions per second; unknown only if executions are not timed."""
    nothing = np.zeros(7)

    assert worked().busy_instances == pytest.approx(0.6 / 10)
    assert worked(requests=0, batch_counts=nothing, batch_seconds=nothing).busy_instances == 0
    assert math.isnan(worked(batch_seconds=nothing).busy_instances)


def test_nothing_is_known_of_a_window_without_requests() -> None:
    """A mean of nothing is not 0."""
    none = np.zeros(1, np.int64)
    window = worked(requests=0, queue=0.0, compute=0.0, inferences=0, batch_counts=none, batch_seconds=none)

    assert np.isnan([window.queue_mean, window.compute_mean, window.batch_mean]).all()
    assert (window.batches, window.profile) == ({}, None)


def test_measurements_that_do_not_know_the_same_are_equal() -> None:
    """NaN stands for what nobody measured, whichever NaN it is."""
    one, other = measurement(0.02, cpu=float("nan")), measurement(0.02, cpu=math.inf - math.inf)

    assert one == other
    assert one != measurement(0.02, cpu=1.0)
    assert one != measurement(0.03, cpu=float("nan"))
    assert one != 0.02

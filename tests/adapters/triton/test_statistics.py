"""Totals that survive resets."""

from __future__ import annotations

import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from tuner.adapters.triton.statistics import (
    CACHED,
    INFERENCES,
    REQUESTS,
    batch_arrays,
    largest_request,
    read_statistics,
)


def test_response_is_read() -> None:
    """Counts and times of a response arrive by version; a batch takes its input, inference and output."""
    response = service_pb2.ModelStatisticsResponse()
    stats = response.model_stats.add(name="m", version="3", inference_count=24, execution_count=3)
    stats.inference_stats.success.count, stats.inference_stats.success.ns = 10, 1000
    stats.inference_stats.fail.count = 2
    stats.inference_stats.cache_hit.count = 4
    stats.inference_stats.queue.ns = 300
    stats.inference_stats.compute_input.ns = 1
    stats.inference_stats.compute_infer.ns = 20
    stats.inference_stats.compute_output.ns = 300
    batch = stats.batch_stats.add(batch_size=8)
    batch.compute_infer.count = 3
    batch.compute_input.ns, batch.compute_infer.ns, batch.compute_output.ns = 5, 60, 700

    assert read_statistics(response) == {
        "3": {
            ("requests", 0): 10,
            ("failures", 0): 2,
            ("latency", 0): 1000,
            ("queue", 0): 300,
            ("compute", 0): 321,
            ("inferences", 0): 24,
            ("cached", 0): 4,
            ("batch_count", 8): 3,
            ("batch_ns", 8): 765,
        }
    }


def test_senseless_numbers_are_clipped() -> None:
    """No number of a server is too large for the arrays."""
    response = service_pb2.ModelStatisticsResponse()
    response.model_stats.add(version="1").batch_stats.add(batch_size=2).compute_infer.count = 2**64 - 1

    counts, _ = batch_arrays(read_statistics(response)["1"], 4)

    assert counts[2] > 0


def test_arrays() -> None:
    """Executions and seconds per batch size; sizes that do not fit are left out."""
    totals = {("batch_count", 2): 4, ("batch_ns", 2): 8_000_000, ("batch_count", 9): 1, REQUESTS: 5}

    counts, seconds = batch_arrays(totals, 3)

    np.testing.assert_array_equal(counts, [0, 0, 4, 0])
    np.testing.assert_allclose(seconds, [0, 0, 0.008, 0])


@pytest.mark.parametrize(
    ("reading", "batching", "rows"),
    [
        ({REQUESTS: 0, INFERENCES: 0}, True, 1),
        ({REQUESTS: 10, INFERENCES: 10}, True, 1),
        ({REQUESTS: 10, INFERENCES: 21}, True, 3),
        ({REQUESTS: 100, INFERENCES: 100, ("batch_count", 16): 5, ("batch_count", 4): 5}, True, 1),
        ({REQUESTS: 100, INFERENCES: 175, ("batch_count", 1): 60, ("batch_count", 16): 5}, True, 16),
        ({REQUESTS: 10, INFERENCES: 40, ("batch_count", 4): 4, ("batch_count", 8): 3}, True, 4),
        ({REQUESTS: 10, INFERENCES: 40, ("batch_count", 4): 4, ("batch_count", 6): 4}, True, 6),
        ({REQUESTS: 10, INFERENCES: 16, CACHED: 8}, True, 8),
        ({REQUESTS: 10, INFERENCES: 0, CACHED: 10}, True, 1),
        ({REQUESTS: 10, INFERENCES: 21, ("batch_count", 12): 1, ("batch_count", 16): 0}, False, 12),
        ({REQUESTS: 0, INFERENCES: 0}, False, 1),
    ],
)
def test_rows_of_requests(reading: dict[tuple[str, int], int], batching: bool, rows: int) -> None:
    """Without batching each execution is one request; with it, a request may have been a whole batch."""
    assert largest_request({"1": reading}, batching=batching) == rows


@pytest.mark.parametrize(("ran", "rows"), [(8, 8), (2, 3), (64, 32)])
def test_rows_of_requests_where_a_lower_limit_ran(ran: int, rows: int) -> None:
    """It can come back, unless there surely are larger requests."""
    reading = {REQUESTS: 100, INFERENCES: 250, ("batch_count", 5): 50, ("batch_count", 32): 1}

    assert largest_request({"1": reading}, batching=True, ran=ran) == rows

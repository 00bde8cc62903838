"""Totals from readings of the metrics page."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tuner.adapters.backend import Counters
from tuner.adapters.tfserving.metrics import Buckets, TFServingMetrics
from tuner.adapters.tfserving.statistics import Statistics, largest_request
from tuner.profile import fit_profile

SIZES = np.append(2.0 ** np.arange(14), np.inf)
TIMES = np.append(10 * 1.8 ** np.arange(33), np.inf)


class Server:
    """Executes batches and prints what TensorFlow Serving would."""

    def __init__(self, alpha: float = 0.001, beta: float = 0.004) -> None:
        self.alpha, self.beta = alpha, beta
        self.clear()

    def clear(self) -> None:
        self.requests = self.failures = 0
        self.entries: dict[str, list[float]] = {
            name: [] for name in ("latency", "runtime", "queue", "batch", "rows")
        }

    def execute(self, rows: int, batch: int, *, batched: bool = True, waited: float = 0.002) -> None:
        """A number of requests of one row in one batch."""
        for _ in range(rows):
            taken = self.alpha * batch + self.beta
            self.requests += 1
            self.entries["latency"].append((taken + (waited if batched else 0) + 0.0005) * 1e6)
            self.entries["runtime"].append((taken + (waited if batched else 0)) * 1e6)
            if batched:
                self.entries["queue"].append(waited * 1e6)
                self.entries["rows"].append(1)
        if batched:
            self.entries["batch"].append(batch)

    def page(self) -> TFServingMetrics:
        def buckets(name: str, bounds: np.ndarray) -> Buckets | None:
            values = np.array(self.entries[name])
            if not values.size:
                return None
            counts = np.bincount(np.searchsorted(bounds, values, side="right"), minlength=bounds.size)
            return Buckets(bounds, counts, float(f"{values.sum():g}"))

        times = {name: buckets(name, TIMES) for name in ("latency", "runtime", "queue")}
        sizes = {name: buckets(name, SIZES) for name in ("batch", "rows")}
        return TFServingMetrics(
            requests=self.requests, failures=self.failures, beyond_servers=0, others=0, **times, **sizes
        )


@pytest.fixture
def server() -> Server:
    return Server()


def counters(statistics: Statistics, server: Server) -> Counters:
    statistics.add(server.page())
    return statistics.counters(1.0)


def test_totals_begin_at_zero(server: Server) -> None:
    """What was counted before the first reading does not count."""
    server.execute(4, 4)
    statistics = Statistics(server.page(), 64)
    server.execute(2, 2)

    found = counters(statistics, server)

    assert (found.requests, found.failures, found.inferences) == (2, 0, 2)
    assert found.latency == pytest.approx(2 * 0.0085, rel=1e-3)
    assert found.queue == pytest.approx(0.004, rel=1e-3)
    assert found.compute == pytest.approx(0.012, rel=1e-3)
    assert found.latencies.counts.sum() == 2


def test_unbatched_requests_are_executions_of_one(server: Server) -> None:
    """Without batching the page has no batches."""
    statistics = Statistics(server.page(), 64)
    for _ in range(5):
        server.execute(1, 1, batched=False)

    found = counters(statistics, server)

    np.testing.assert_array_equal(found.batch_counts[:3], [0, 5, 0])
    assert found.batch_seconds[1] == pytest.approx(0.025, rel=1e-3)
    assert found.queue == 0


@pytest.mark.parametrize("size", [1, 2, 3, 8, 13, 32])
def test_batches_of_one_size_are_found_exactly(server: Server, size: int) -> None:
    """The bucket is known and so is the sum."""
    statistics = Statistics(server.page(), 64)
    for _ in range(4):
        server.execute(size, size)

    found = counters(statistics, server)

    assert found.batch_counts[size] == 4
    assert found.batch_counts.sum() == 4


def test_the_profile_is_found_by_comparing(server: Server) -> None:
    """Readings with small and with large batches give l(b); the time adds up to what the page says."""
    generator = np.random.default_rng(0)
    statistics = Statistics(server.page(), 64)
    for limit in (1, 4, 16, 2, 32, 8):
        for _ in range(50):
            size = int(generator.integers(1, limit + 1))
            server.execute(size, size)
        statistics.add(server.page())

    profile = fit_profile(*statistics.batches())

    assert profile.alpha == pytest.approx(0.001, rel=0.2)
    assert profile.beta == pytest.approx(0.004, rel=0.3)
    assert profile.latency(16) == pytest.approx(0.020, rel=0.1)


def test_batches_that_are_executed_while_the_page_is_read(server: Server) -> None:
    """They are counted at their beginning, and how long they took at their end: no request was alone."""
    statistics = Statistics(server.page(), 64)
    for _ in range(3):
        done = list(server.entries["runtime"])
        server.execute(8, 8)
        ended, server.entries["runtime"] = server.entries["runtime"], done
        for _ in range(2):
            statistics.add(server.page())
        server.entries["runtime"] = ended
        statistics.add(server.page())
    server.execute(2, 1, batched=False)

    found = counters(statistics, server)

    assert found.batch_counts[[1, 8]].tolist() == [2, 3]


def test_of_the_batches_of_all_models_a_share_is_ours(server: Server) -> None:
    """As large as that of the requests: else executions would seem to take a part of their time."""
    statistics = Statistics(server.page(), 64)
    for _ in range(5):
        server.execute(8, 8)
    for _ in range(15):  # another model's
        server.entries["queue"] += [2000.0] * 8
        server.entries["rows"] += [1] * 8
        server.entries["batch"].append(8)
    statistics.add(replace(server.page(), others=120))

    found = statistics.counters(1.0)

    assert found.batch_counts[8] == found.batch_counts.sum() == 5
    assert found.inferences == 40
    assert found.batch_seconds[8] == pytest.approx(5 * 0.012, rel=1e-3)


def test_a_restart_is_carried_over(server: Server) -> None:
    """After the server began at 0 again, totals go on from where they were."""
    statistics = Statistics(server.page(), 64)
    server.execute(4, 4)
    statistics.add(server.page())
    server.clear()
    server.execute(2, 2)

    found = counters(statistics, server)

    assert (found.requests, found.restarts) == (6, 1)
    assert found.batch_counts[[2, 4]].tolist() == [1, 1]
    assert found.compute == pytest.approx(4 * 0.008 + 2 * 0.006, rel=1e-3)


def test_padding_counts_as_executed(server: Server) -> None:
    """Three requests in a batch of four allowed rows: an execution of 4."""
    statistics = Statistics(server.page(), 64)
    server.execute(3, 4)

    found = counters(statistics, server)

    assert found.inferences == 3
    assert found.batch_counts[4] == 1


@pytest.mark.parametrize(
    ("rows", "largest"),
    [([], 1), ([1] * 50, 1), ([8, 8, 8], 8), ([6], 6), ([6, 6], 7), ([1, 1, 16], 16), ([5, 5, 4], 6)],
)
def test_rows_of_requests(server: Server, rows: list[float], largest: int) -> None:
    """Never less than the largest; exact where the buckets leave no doubt."""
    server.entries["rows"] = rows

    assert largest_request(server.page().rows) == largest
    assert largest >= max(rows, default=1)


def test_rows_behind_a_sum_of_six_digits() -> None:
    """Of 4,000,004 rows the server prints 4e+06, and one request had 31 of them."""
    counts = np.zeros(SIZES.size, np.int64)
    counts[[1, 5]] = 3_999_973, 1

    assert largest_request(Buckets(SIZES, counts, 4e6)) == 31


def test_rows_under_a_limit(server: Server) -> None:
    """Larger requests would have been refused, unless there surely were some, and to no other model."""
    server.entries["rows"] = [5, 6]

    assert largest_request(server.page().rows) == 7
    assert largest_request(server.page().rows, 6) == 6
    assert largest_request(server.page().rows, 3) == 7
    assert largest_request(server.page().rows, 3, alone=False) == 3


def test_batched_requests_without_rows() -> None:
    """Their histogram has entries, and a sum of nothing: a request has one row at least."""
    buckets = {
        name: Buckets(np.array([2.0, np.inf]), np.array([4, 0]), 4000.0)
        for name in ("latency", "runtime", "queue", "batch", "rows")
    }
    nothing = dict.fromkeys(buckets)
    statistics = Statistics(
        TFServingMetrics(requests=0, failures=0, beyond_servers=0, others=0, **nothing), 16
    )
    buckets["queue"] = replace(buckets["queue"], sum=0.0)
    buckets["rows"] = replace(buckets["rows"], sum=0.0)
    statistics.add(TFServingMetrics(requests=4, failures=0, beyond_servers=0, others=0, **buckets))

    now = statistics.counters(0.0)
    assert now.batch_counts.sum() == 4
    assert now.batch_seconds.sum() == pytest.approx(0.004)

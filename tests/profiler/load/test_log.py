"""The memory of a load generator's requests."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.errors import InvalidInput
from tuner.profiler.load.log import LoadLog
from tuner.profiler.load.wire import DONE, PACK, RECORD, SENT, TICK


def records(*rows: tuple[int, int, int, float, float]) -> np.ndarray:
    return np.frombuffer(b"".join(PACK.pack(*row) for row in rows), RECORD)


def test_requests_are_answered_failed_or_outstanding() -> None:
    """Three requests, one of each."""
    log = LoadLog()
    log.add(records(*((SENT, 0, n, 10.0 + n, 10.1 + n) for n in range(3))))
    log.add(records((DONE, 0, 1, 0.0, 11.5), (DONE, 14, 0, 0.0, 12.0), (TICK, 0, 0, 13.0, 0.0)))
    sample, totals = log.sample(10.0, 13.0), log.totals()

    assert log.wait_reported(13.0, 0.0)
    assert sample.latency == pytest.approx([np.nan, 0.5, np.nan], nan_ok=True)
    assert sample.lateness == pytest.approx([0.1, 0.1, 0.1])
    assert sample.failed == 1
    assert (totals.sent, totals.answered, totals.failed, totals.outstanding) == (3, 1, 1, 1)
    assert totals.reasons == {"unavailable": 1}


def test_sample_takes_its_half_open_interval() -> None:
    """The beginning belongs to it, the end does not."""
    log = LoadLog()
    log.add(records(*((SENT, 0, n, float(n), float(n)) for n in range(10))))

    assert log.sample(3.0, 6.0).intended.tolist() == [3.0, 4.0, 5.0]


def test_answers_count_when_they_come() -> None:
    """Whenever the request was sent; the beginning belongs to the interval, the end does not."""
    log = LoadLog()
    log.add(records(*((SENT, 0, n, float(n), float(n)) for n in range(5))))
    log.add(records((DONE, 0, 0, 0.0, 7.0), (DONE, 14, 1, 0.0, 7.0), (DONE, 0, 2, 0.0, 8.0)))
    log.add(records((DONE, 0, 3, 0.0, 7.5)))

    assert log.answered(7.0, 8.0).tolist() == [7.0, 4.5]
    assert log.sample(7.0, 8.0).answered.tolist() == [7.0, 4.5]


def test_old_requests_are_forgotten_but_counted() -> None:
    """A ring of eight remembers the last eight; late answers to older ones only count."""
    log = LoadLog(capacity=8)
    log.add(records(*((SENT, 0, n, float(n), float(n)) for n in range(6))))
    log.add(records(*((SENT, 0, n, float(n), float(n)) for n in range(6, 12))))
    log.add(records((DONE, 0, 0, 0.0, 20.0), (DONE, 0, 8, 0.0, 20.0)))

    assert log.sample(6.0, 12.0).latency.tolist()[2] == 12.0
    assert np.isnan(log.sample(6.0, 12.0).latency).sum() == 5
    assert log.totals().answered == 2
    with pytest.raises(InvalidInput, match="more than 8 requests"):
        log.sample(2.0, 5.0)


def test_waiting_ends_when_the_worker_does() -> None:
    """Nobody waits for a worker that is gone."""
    log = LoadLog()
    log.close()

    assert not log.wait_reported(5.0, patience=60.0)

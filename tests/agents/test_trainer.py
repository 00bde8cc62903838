"""Jobs in the background: done once for all requests, and begun anew after a failure."""

from __future__ import annotations

import logging
import threading

import pytest

from tuner.agents.worker import Worker

PATIENCE = 30.0


def test_requests_that_come_meanwhile_are_served_together() -> None:
    """Three requests while the first is being served are one job."""
    served: list[int] = []
    begun, go_on = threading.Event(), threading.Event()

    def job(requests: int) -> None:
        served.append(requests)
        begun.set()
        assert go_on.wait(PATIENCE)

    worker = Worker(job, "test", background=True)
    worker.request()
    assert begun.wait(PATIENCE)
    for _ in range(3):
        worker.request()
    go_on.set()
    assert worker.wait(PATIENCE)
    worker.close()
    assert served == [1, 3]


def test_a_failed_job_is_told_of_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """An error in the background ends neither the worker nor what waits for it."""
    calls: list[int] = []

    def job(requests: int) -> None:
        calls.append(requests)
        if len(calls) == 1:
            raise FloatingPointError("the matrix is singular")

    worker = Worker(job, "fit", background=True)
    with caplog.at_level(logging.WARNING):
        worker.request()
        assert worker.wait(PATIENCE)
        worker.request()
        assert worker.wait(PATIENCE)
    worker.close()
    assert calls == [1, 1]
    assert [record.getMessage() for record in caplog.records] == [
        "fit failed, and is tried again after the next window: the matrix is singular"
    ]


def test_at_once_an_error_is_the_callers() -> None:
    """Without a thread the request itself fails."""

    def job(requests: int) -> None:
        raise FloatingPointError(requests)

    worker = Worker(job, "fit", background=False)
    with pytest.raises(FloatingPointError):
        worker.request()
    worker.close()

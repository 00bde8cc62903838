"""Training in the background: one run serves all waiting requests, and a failed run is tried again."""

from __future__ import annotations

import logging
import threading

import pytest

from tuner.agents.trainer import Trainer

PATIENCE = 30.0


def test_requests_that_come_meanwhile_are_served_together() -> None:
    """Three requests while the first is being served are one job."""
    served: list[int] = []
    begun, go_on = threading.Event(), threading.Event()

    def job(requests: int) -> None:
        served.append(requests)
        begun.set()
        assert go_on.wait(PATIENCE)

    trainer = Trainer(job, "test", background=True)
    trainer.request()
    assert begun.wait(PATIENCE)
    for _ in range(3):
        trainer.request()
    go_on.set()
    assert trainer.wait(PATIENCE)
    trainer.close()
    assert served == [1, 3]


def test_a_failed_job_is_logged_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """An error in the background ends neither the trainer nor what waits for it."""
    calls: list[int] = []

    def job(requests: int) -> None:
        calls.append(requests)
        if len(calls) == 1:
            raise FloatingPointError("the matrix is singular")

    trainer = Trainer(job, "fit", background=True)
    with caplog.at_level(logging.WARNING):
        trainer.request()
        assert trainer.wait(PATIENCE)
        trainer.request()
        assert trainer.wait(PATIENCE)
    trainer.close()
    assert calls == [1, 1]
    assert [record.getMessage() for record in caplog.records] == [
        "fit failed, and is tried again after the next window: the matrix is singular"
    ]


def test_at_once_an_error_is_the_callers() -> None:
    """Without a thread the request itself fails."""

    def job(requests: int) -> None:
        raise FloatingPointError(requests)

    trainer = Trainer(job, "fit", background=False)
    with pytest.raises(FloatingPointError):
        trainer.request()
    trainer.close()

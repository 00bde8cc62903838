"""An overloaded server is given time to answer what waits, also if it does not say that anything does."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.builders import measurement
from tuner.knobs import Configuration
from tuner.profiler.attachment import LONGEST_DRAIN, Attachment


class Overloaded:
    """Clock, load and profiler of a server that answers 100 requests/s of those that wait."""

    def __init__(self, waiting: int, queue: float) -> None:
        self.time, self.waiting, self.queue, self.rate = 0.0, waiting, queue, 100.0

    def now(self) -> float:
        return self.time

    def set_rate(self, rate: float) -> None:
        self.rate = rate

    def totals(self) -> SimpleNamespace:
        return SimpleNamespace(outstanding=self.left)

    @property
    def left(self) -> int:
        return max(self.waiting - round(100 * self.time), 0)

    def measure(self, seconds: float) -> Any:
        self.time += seconds
        return replace(measurement(0.010), queue_mean=self.queue if self.left else 0.0)


@pytest.mark.parametrize("queue", [0.2, 0.0, float("nan")])
@pytest.mark.parametrize(("waiting", "seconds"), [(0, 0.5), (300, 3.0), (100_000, LONGEST_DRAIN)])
def test_a_load_is_light_until_what_waits_is_answered(queue: float, waiting: int, seconds: float) -> None:
    """By the queue that the server reports, or by the answers that our clients miss."""
    server: Any = Overloaded(waiting, queue)
    attachment = Attachment(
        backend=server,
        description=server,
        profiler=server,
        clock=server,
        host=server,
        load=server,
        original=Configuration(),
    )

    attachment.drain(10.0)

    assert server.rate == 10.0
    assert server.time == pytest.approx(seconds, abs=0.5)

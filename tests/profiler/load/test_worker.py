"""The process that sends load, within a test's own process and over channels that are made up."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import numpy as np

from tuner.profiler.load.timetable import Timetable
from tuner.profiler.load.worker import LoadWorker
from tuner.workload.notation import parse_arrival


class SilentChannel:
    """A channel to a server that never answers."""

    def __init__(self) -> None:
        self.calls = 0

    def unary_unary(self, method: str) -> Any:
        def call(raw: bytes) -> Any:
            self.calls += 1
            return asyncio.get_running_loop().create_future()

        return call


class Pipe:
    """A pipe that nobody reads."""

    def write(self, data: bytes) -> None:
        pass


def test_requests_without_an_answer_make_room_when_they_are_given_up() -> None:
    """A server that hangs must not end the load, which may go to others meanwhile."""
    channel = SilentChannel()
    pipe: Any = Pipe()

    async def send() -> list[int]:
        now = time.monotonic()
        timetable = Timetable(parse_arrival("constant:0.001"), np.random.default_rng(0), now)
        worker = LoadWorker([channel], "/infer", b"", timetable, timeout=1000.0, pipe=pipe)
        worker.command({"in_flight": 1})
        worker._send(now - 2000.0)
        worker._send(now)
        before = channel.calls
        worker._flush()
        return [before, channel.calls]

    assert asyncio.run(send()) == [1, 2]

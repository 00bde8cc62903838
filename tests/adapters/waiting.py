"""Waiting for what a server does after it has answered."""

from __future__ import annotations

from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from tests.waiting import LONGEST
from tuner.adapters.backend import Backend, Counters


def counted(backend: Backend, requests: int) -> Counters:
    """Wait until the server has counted that many requests: it counts after it answers."""
    patiently = Retrying(
        stop=stop_after_delay(LONGEST),
        wait=wait_fixed(0.01),
        retry=retry_if_result(lambda counters: counters.requests < requests),
    )
    return patiently(backend.counters)

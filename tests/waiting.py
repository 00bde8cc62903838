"""Waiting for what comes about by itself, however slow the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable

LONGEST = 120.0
"""What has not come about by then never will, s."""


def eventually(condition: Callable[[], object], seconds: float = LONGEST) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not come about"
        time.sleep(0.01)

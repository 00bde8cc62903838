"""The two servers of the soak: their load, what stands still beside the daemon, and its knobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["SERVERS", "TFSERVING", "TRITON", "Kept"]

SIZES, DELAYS = (1, 2, 4, 8, 16), ("0ms", "2ms", "5ms")


@dataclass(frozen=True, kw_only=True)
class Kept:
    """One of the two."""

    name: str
    rates: tuple[float, float]
    """Low and high, requests/s; the high one is where to begin looking for it."""
    statics: tuple[Mapping[str, float], ...]
    """Configurations that stand still, the default first."""
    knobs: Mapping[str, object]
    """As the daemon's file has them."""


TRITON = Kept(
    name="triton",
    rates=(15.0, 150.0),
    statics=(
        {"max_batch_size": 1, "max_queue_delay": 0.0, "instances": 1},
        {"max_batch_size": 4, "max_queue_delay": 0.0, "instances": 1},
        {"max_batch_size": 8, "max_queue_delay": 0.0, "instances": 1},
        {"max_batch_size": 4, "max_queue_delay": 0.0, "instances": 2},
        {"max_batch_size": 8, "max_queue_delay": 0.002, "instances": 2},
    ),
    knobs={"max_batch_size": SIZES, "max_queue_delay": DELAYS, "instances": (1, 2)},
)
TFSERVING = Kept(
    name="tfserving",
    rates=(15.0, 200.0),
    statics=(
        {"max_batch_size": 1, "batch_timeout": 0.0},
        {"max_batch_size": 4, "batch_timeout": 0.0},
        {"max_batch_size": 8, "batch_timeout": 0.0},
        {"max_batch_size": 8, "batch_timeout": 0.002},
        {"max_batch_size": 16, "batch_timeout": 0.005},
    ),
    knobs={"max_batch_size": SIZES, "batch_timeout": DELAYS},
)
SERVERS = (TRITON, TFSERVING)

"""The messages between the load generator and its worker process.

To the worker, over its stdin, go JSON lines: first the :class:`Setup`, then commands, which are
``{"arrival": "poisson:300"}``, ``{"in_flight": 8}``, ``{"stop": 2.0}`` and
``{"endpoint": {"address": "10.0.0.7:8001", ...}}`` with all fields of an endpoint; the end of stdin is the
end of the worker. From it, over its stdout, comes one JSON line (``{}`` when it is ready, else
``{"error": kind, "message": text}``) and then binary records of 32 bytes. All times are on the monotonic
clock, which is the same for both processes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tuner.adapters.connection.endpoint import Endpoint

__all__ = [
    "CANCELLED",
    "DONE",
    "LOST",
    "NOT_SENT",
    "OK",
    "PACK",
    "RECORD",
    "SENT",
    "STATUS",
    "TICK",
    "Setup",
    "read_endpoint",
]

SENT = 0
"""A request was sent: number, intended time, time of sending."""
DONE = 1
"""A request ended: number, status, time of the answer."""
TICK = 2
"""Everything intended before the first time has been reported."""

PACK = struct.Struct("<iiqdd")
RECORD = np.dtype(
    [("kind", "<i4"), ("status", "<i4"), ("number", "<i8"), ("first", "<f8"), ("second", "<f8")]
)
assert PACK.size == RECORD.itemsize

STATUS = (
    "ok",
    "cancelled",
    "unknown",
    "invalid_argument",
    "deadline_exceeded",
    "not_found",
    "already_exists",
    "permission_denied",
    "resource_exhausted",
    "failed_precondition",
    "aborted",
    "out_of_range",
    "unimplemented",
    "internal",
    "unavailable",
    "data_loss",
    "unauthenticated",
    "not_sent",
)
"""Names of the gRPC status codes, by number, and one of our own for a request that was not sent."""
OK, CANCELLED, LOST, NOT_SENT = 0, 1, 4, 17


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """The first message to a worker."""

    endpoint: Endpoint
    arrival: str
    """As :func:`~tuner.workload.notation.parse_arrival` reads it."""
    shapes: Mapping[str, tuple[int, ...]]
    """Input name -> shape without the batch dimension, where the model leaves it open."""
    seed: int
    timeout: float
    """When a request counts as lost, s after its intended send time."""
    patience: float
    """How long to wait for the server at the start, s."""

    def to_line(self) -> bytes:
        """Return the JSON line."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Setup:
        """Read the JSON line."""
        values = json.loads(line)
        return cls(**{**values, "endpoint": read_endpoint(values["endpoint"])})


def read_endpoint(values: Mapping[str, Any]) -> Endpoint:
    """Return the endpoint that :func:`dataclasses.asdict` has turned into plain values."""
    return Endpoint(**{**values, "others": [read_endpoint(other) for other in values["others"]]})

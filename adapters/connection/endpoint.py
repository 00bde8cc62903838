"""Where and in which protocol requests of our own reach a model.

A load generator runs in a process of its own, so it gets plain values: an :class:`Endpoint` names a module
that speaks the server's protocol (a :class:`Wire`), and holds everything that the module needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from tuner.adapters.connection.request import FilledInput, Input, filled_inputs
from tuner.adapters.connection.security import SECURITY_OPTIONS

__all__ = ["Endpoint", "Loadable", "Wire", "make_request"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    """One model, as clients reach it."""

    wire: str
    """The module that speaks the protocol, such as ``tuner.adapters.triton.wire``."""
    address: str
    """``host:port`` of the gRPC service. Several, separated by commas, get requests by turns."""
    model: str
    options: Mapping[str, str] = field(default_factory=dict)
    """What a request must name besides the model, such as a version label."""
    security: Mapping[str, str] = field(default_factory=lambda: dict(SECURITY_OPTIONS))
    """How it is reached, as options of a target: names of files, but no secrets."""


@runtime_checkable
class Loadable(Protocol):
    """A backend to which clients can send requests, as they cannot to a simulated one."""

    def endpoint(self) -> Endpoint:
        """Return how clients reach the model."""
        ...


class Wire(Protocol):
    """A module that makes requests in one protocol."""

    METHOD: str
    """Path of the gRPC method that infers."""

    async def read_inputs(self, channel: Any, endpoint: Endpoint, timeout: float) -> list[Input]:
        """Ask the server for the inputs of the model.

        Args:
            channel: A ``grpc.aio`` channel.
            endpoint: The model.
            timeout: Longest wait for the answer, s.

        Raises:
            InvalidInput: The model has no inputs that could be filled.
            grpc.aio.AioRpcError: The server does not answer, or does not serve the model.
        """
        ...

    def encode(self, endpoint: Endpoint, inputs: Iterable[FilledInput]) -> bytes:
        """Return a serialised request with one row.

        Args:
            endpoint: The model.
            inputs: Its inputs with their data.
        """
        ...


async def make_request(
    wire: Wire,
    channel: Any,
    endpoint: Endpoint,
    *,
    shapes: Mapping[str, Sequence[int]],
    generator: np.random.Generator,
    timeout: float,
) -> bytes:
    """Ask the server for the model's inputs, and return a serialised request with one row of random data.

    Args:
        wire: Speaks the server's protocol.
        channel: A ``grpc.aio`` channel.
        endpoint: The model.
        shapes: Shapes for inputs with open dimensions, without the batch dimension; open ones become 1.
        generator: Of the data.
        timeout: Longest wait for the answer, s.

    Raises:
        InvalidInput: A shape is for no input or does not fit, or a data type is unknown.
        grpc.aio.AioRpcError: The server does not answer, or does not serve the model.
    """
    inputs = await wire.read_inputs(channel, endpoint, timeout)
    return wire.encode(endpoint, filled_inputs(inputs, shapes, generator))

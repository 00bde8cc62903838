"""Where and in which protocol requests of our own reach a model.

A load generator runs in a process of its own, so it gets plain values: an :class:`Endpoint` names a module
that speaks the server's protocol (a :class:`Wire`), and holds everything that the module needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from tuner.adapters.connection.request import FilledInput, Input
from tuner.adapters.connection.security import SECURITY_OPTIONS

__all__ = ["Endpoint", "Loadable", "Wire"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    """One model, as clients reach it."""

    wire: str
    """The module that speaks the protocol, such as ``tuner.adapters.triton.wire``."""
    address: str
    """``host:port`` of the gRPC service."""
    model: str
    options: Mapping[str, str] = field(default_factory=dict)
    """What a request must name besides the model, such as a version label."""
    security: Mapping[str, str] = field(default_factory=lambda: dict(SECURITY_OPTIONS))
    """How it is reached, as options of a target: names of files, but no secrets."""
    others: list[Endpoint] = field(default_factory=list)
    """Further replicas, with the same protocol and model. Requests go by turns to this one and to them."""

    @property
    def replicas(self) -> list[Endpoint]:
        """This one and the others."""
        return [self, *self.others]


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

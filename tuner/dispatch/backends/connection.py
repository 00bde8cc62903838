"""What the dispatcher needs of a server: send a batch, ask what a model is, ask whether it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tuner.dispatch.request import Metadata, Refused, Reply, Request, Tensor

__all__ = ["Connection", "Doubtful", "Lost", "ModelLimits"]


class Lost(Exception):
    """The server did not answer, and another one may: it is away, or ends."""


class Doubtful(Refused):
    """A server refuses a batch as one does that lacks the model, refuses a token, or ends; a probe tells."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelLimits:
    """What a server says of how its model takes batches."""

    max_batch: int | None = None
    """Most items of a request; 0 for a model that does not batch, None if the server does not say."""
    batches_itself: bool | None = None
    """Whether the server merges requests by itself; None if it does not say."""
    problem: str = ""
    """Why the dispatcher cannot serve the model; empty if it can."""


class Connection(Protocol):
    """A server. A call fails with :class:`Lost`, or with a `Refused` that is about the request."""

    @property
    def address(self) -> str:
        """As ``host:port``."""
        ...

    @property
    def probed_at(self) -> str:
        """Where it is asked whether it is there, as ``host:port``."""
        ...

    async def infer(self, model: str, like: Request, inputs: tuple[Tensor, ...]) -> Reply:
        """Execute a batch. It has no timeout: who waits for it gives it up.

        Args:
            model: The server's name of the model.
            like: A request of the batch: its outputs, version and parameters are those of all.
                Its trace goes with the batch.
            inputs: Of the whole batch.

        Raises:
            Lost: There is no answer.
            Refused: The server refuses the batch, or the model fails on it; `Doubtful` if the reason may be
                the server.
        """
        ...

    async def ready(self, model: str, timeout: float) -> bool:
        """Return whether the server answers for a model within a time, s. Raises nothing."""
        ...

    async def limits(self, model: str, timeout: float) -> ModelLimits:
        """Return how a model takes batches.

        Raises:
            Lost: There is no answer.
        """
        ...

    async def metadata(self, model: str, timeout: float) -> Metadata:
        """Return what a model expects and gives.

        Raises:
            Lost: There is no answer.
        """
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...

"""What the dispatcher's fronts, its scheduler and its backends hand to each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple, Protocol

__all__ = [
    "Metadata",
    "ModelForm",
    "Refused",
    "Reply",
    "Request",
    "Service",
    "Status",
    "Tensor",
    "TensorKind",
    "TraceContext",
]


class Status(Enum):
    """Why a request has no answer; each front says it in its own protocol."""

    INVALID = "invalid"
    """The request is malformed, or its tensors do not suit the model."""
    NOT_FOUND = "not found"
    """No session has this name, or its model has no such version."""
    UNSUPPORTED = "unsupported"
    """The protocol has it, but a scheduler in front of several servers cannot offer it."""
    EXHAUSTED = "exhausted"
    """A limit is reached: the queue is full, or too much is in progress."""
    TOO_LARGE = "too large"
    """The request, or its answer, is larger than any may be."""
    DEADLINE = "deadline"
    """The request cannot be answered by its deadline, or was not."""
    UNAVAILABLE = "unavailable"
    """No backend can take it, or the dispatcher is ending."""
    INTERNAL = "internal"
    """A backend failed on it."""


class Refused(Exception):
    """A request ends without an answer.

    Args:
        status: Why, for programs.
        reason: Why, in one sentence.
    """

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class Tensor(NamedTuple):
    """An input or an output with its values.

    Args:
        name: Its name.
        datatype: As KServe's protocol names it: ``FP32``, ``BYTES``, ...
        shape: Its dimensions; requests of a model that batches have their items along the first.
        content: Its values in row-major order, little endian; each element of ``BYTES`` follows its length
            (4 bytes), BOOL has one byte for each value.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    content: bytes


@dataclass(frozen=True, slots=True)
class TensorKind:
    """What a model expects or gives under a name; -1 in a shape stands for any length."""

    name: str
    datatype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Metadata:
    """What a session's model expects and gives."""

    name: str
    versions: tuple[str, ...]
    platform: str
    inputs: tuple[TensorKind, ...]
    outputs: tuple[TensorKind, ...]
    version: str = ""
    """The one that the inputs and outputs are of; the newest if empty."""


class ModelForm(NamedTuple):
    """What is asked of a model; the server chooses what is empty."""

    version: str = ""
    label: str = ""
    """Of a version, for TensorFlow Serving."""
    signature: str = ""
    """For TensorFlow Serving."""


class TraceContext(NamedTuple):
    """A span of a distributed trace, as W3C's headers name it."""

    traceparent: str
    tracestate: str = ""

    def headers(self) -> tuple[tuple[str, str], ...]:
        """Return the headers that pass it on."""
        given = self._asdict().items()
        return tuple((name, value) for name, value in given if value)


NO_PARAMETERS: Mapping[str, bool | int | float | str] = MappingProxyType({})
"""Of a request without any."""


class Request(NamedTuple):
    """One inference.

    Args:
        session: Which session it belongs to.
        inputs: Its inputs.
        outputs: The names of the outputs wanted; all if empty.
        deadline: From when its answer is worthless, s on the clock of ``time.monotonic``; if None, the
            session's SLO after its arrival.
        version: The version of the model; the server's choice if empty.
        parameters: Further parameters of the protocol. Requests with unlike ones do not share a batch.
        trace: The span of a distributed trace that it belongs to, if it is traced.
    """

    session: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[str, ...] = ()
    deadline: float | None = None
    version: str = ""
    parameters: Mapping[str, bool | int | float | str] = NO_PARAMETERS
    trace: TraceContext | None = None


class Reply(NamedTuple):
    """The answer to one request."""

    outputs: tuple[Tensor, ...]
    version: str = ""


class Service(Protocol):
    """What a front needs of the dispatcher. All calls come from one event loop."""

    @property
    def sessions(self) -> Sequence[str]:
        """The names of the sessions."""
        ...

    def ready(self, session: str | None = None) -> bool:
        """Return whether requests are taken, by one session or by any."""
        ...

    async def metadata(self, session: str) -> Metadata:
        """Return what a session's model expects and gives.

        Raises:
            Refused: There is no such session, or no backend can say.
        """
        ...

    async def infer(self, request: Request, write: Callable[[Reply], bytes]) -> bytes:
        """Answer a request. Cancelling the call withdraws the request.

        Args:
            request: What is asked.
            write: Returns the message that answers; a refusal by it is the end of the request.

        Raises:
            Refused: It has no answer.
        """
        ...

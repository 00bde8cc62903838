"""What a frontend that keeps its inputs asks the dispatcher for, and what it gets."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from tuner.dispatch.request import ModelForm, Status, TraceContext

__all__ = ["CONVERSE", "LONGEST_KIND", "LONGEST_PROBLEM", "WELCOME", "Ask", "Ended", "Grant", "Grants"]


CONVERSE = "/servetune.Grants/Converse"
"""The method of gRPC over which frontends ask."""
WELCOME = "servetune-welcome"
"""The header with which the dispatcher takes a conversation up."""
LONGEST_KIND = 2_000
"""Characters of a kind, which the dispatcher keeps."""
LONGEST_PROBLEM = 200
"""Characters of why a backend could not be asked; the rest is cut off."""


class Ask(NamedTuple):
    """A frontend asks where and when to send a request."""

    session: str
    items: int = 1
    """At least 0, which only a model that does not batch takes."""
    kind: str = ""
    """What requests of one batch have in common, such as the shapes of their inputs."""
    deadline: float | None = None
    """From when its answer is worthless, s on the clock of ``time.monotonic``; if None, the session's SLO
    after its arrival."""
    trace: TraceContext | None = None
    """The span of a distributed trace that it belongs to, if it is traced."""


class Ended(NamedTuple):
    """What came of a granted request, as its frontend saw it."""

    seconds: float | None = None
    """From sending it to the answer, s; None without an answer."""
    lost: str = ""
    """Why the backend could not be asked; empty if it could."""
    status: Status | None = None
    """Why the backend's answer was a refusal; None if it was none."""

    @property
    def answered(self) -> bool:
        """Whether the backend has executed the request."""
        return self.seconds is not None and self.status is None


@dataclass(frozen=True, slots=True, eq=False)
class Grant:
    """The permission to send a request now.

    Args:
        backend: Where, as ``scheme://host:port``.
        model: Under which name.
        timeout: s until the answer is worthless.
        trace: The span that the backend's work belongs to, if it is traced.
        form: What is asked of the model.
    """

    backend: str
    model: str
    timeout: float
    trace: TraceContext | None = None
    form: ModelForm = field(default_factory=ModelForm)
    ended: asyncio.Future[Ended] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """What came of it; the backend counts as busy until then."""

    def end(self, ended: Ended) -> None:
        """Say what came of it; what was said first holds."""
        if not self.ended.done():
            self.ended.set_result(ended)


class Grants(Protocol):
    """What grants requests. All calls come from one event loop."""

    async def grant(self, ask: Ask) -> Grant:
        """Wait until a request may be sent. Cancelling the call withdraws it.

        Raises:
            Refused: It may not be sent.
        """
        ...

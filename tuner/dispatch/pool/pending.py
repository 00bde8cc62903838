"""A request on its way through the dispatcher."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

from tuner.dispatch.grant import Ended, Grant
from tuner.dispatch.request import Refused, Reply, Request, Status
from tuner.dispatch.tracing import RequestTrace

__all__ = ["Pending", "still_waiting", "traces_of"]


@dataclass(slots=True, eq=False)
class Pending:
    """A request from its arrival to its one answer, which is the result of its future.

    It waits, is sent in a batch, and waits again if the server is lost. The first answer or refusal counts;
    later ones are ignored.
    """

    request: Request
    """Without inputs, if its frontend keeps them."""
    items: int
    arrived: float
    """s on the loop's clock, like all times here."""
    due: float
    """When its answer becomes worthless, s."""
    future: asyncio.Future[Any]
    """A `Reply`, or a `Grant` if the frontend keeps the inputs."""
    kind: Hashable
    """What the requests of one batch must have in common, such as the shapes of their inputs."""
    trace: RequestTrace | None = None
    """None if it is not traced."""
    queued: bool = False
    """Whether it waits in the scheduler's queue; not while its batch executes, nor after it was dropped."""
    dropped: str = ""
    """Why the scheduler has dropped it, while it is to be offered again."""
    trial: bool = False
    """Whether it waits although, by what is believed, it cannot be answered in time."""
    tries: int = 0
    """How many batches it was part of."""
    first_entry: int = 0
    """The number of the first of its entries since it waits; those before it are from an earlier time."""

    @property
    def session(self) -> str:
        """The name of its session."""
        return self.request.session

    @property
    def over(self) -> bool:
        """Whether it is answered, or nobody waits for the answer."""
        return self.future.done()

    def answer(self, answer: Reply | Grant) -> None:
        """Answer the request, unless it was answered or refused before."""
        if not self.future.done():
            self.future.set_result(answer)

    def give_back(self) -> None:
        """End a grant that was given just when its frontend stopped waiting for it."""
        if self.future.done() and not self.future.cancelled() and self.future.exception() is None:
            answer = self.future.result()
            if isinstance(answer, Grant):
                answer.end(Ended())

    def refuse(self, status: Status, reason: str) -> None:
        """Refuse the request, unless it was answered or refused before."""
        if not self.future.done():
            self.future.set_exception(Refused(status, reason))


def still_waiting(requests: Iterable[Pending]) -> list[Pending]:
    """Return those of some requests that still wait, each once."""
    return [one for one in dict.fromkeys(requests) if one.queued and not one.over]


def traces_of(requests: Iterable[Pending]) -> list[RequestTrace]:
    """Return the traces of those requests that are traced: all or none."""
    return [one.trace for one in requests if one.trace is not None]

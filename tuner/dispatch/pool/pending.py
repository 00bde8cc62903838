"""A request on its way through the dispatcher."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass, field

from tuner.dispatch.pool.tensors import kind_of
from tuner.dispatch.request import Refused, Reply, Request, Status

__all__ = ["Pending"]


@dataclass(slots=True, eq=False)
class Pending:
    """A request from its arrival to its one answer, which is the result of its future.

    It waits, is sent in a batch, and may come to wait again if the server is lost. Whoever answers first has
    answered; what comes later is ignored.
    """

    request: Request
    items: int
    arrived: float
    """s on the loop's clock, like all times here."""
    due: float
    """When its answer becomes worthless, s."""
    future: asyncio.Future[Reply]
    sent: bool = False
    """Whether it is part of a batch that is executing."""
    tries: int = 0
    """Batches that it was part of."""
    kind: Hashable = field(init=False)

    def __post_init__(self) -> None:
        self.kind = kind_of(self.request)

    @property
    def session(self) -> str:
        """The name of its session."""
        return self.request.session

    @property
    def over(self) -> bool:
        """Whether it is answered, or nobody waits for the answer."""
        return self.future.done()

    def answer(self, reply: Reply) -> None:
        """Give the answer, unless there is one."""
        if not self.future.done():
            self.future.set_result(reply)

    def refuse(self, status: Status, reason: str) -> None:
        """Say that there will be no answer, unless there is one."""
        if not self.future.done():
            self.future.set_exception(Refused(status, reason))

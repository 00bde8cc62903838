"""A dispatcher that answers at once with what it is asked, and fronts of it for clients that block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tuner.dispatch.front import FrontConfig, Fronts
from tuner.dispatch.grant import Ask, Ended, Grant
from tuner.dispatch.request import Metadata, Refused, Reply, Request, Status, Tensor, TensorKind

__all__ = ["PATIENCE", "Echo", "running"]

PATIENCE = 60.0
"""How long a busy machine may take for anything that is waited for, s."""
ENDLESS = 600.0
"""How long an inference takes that a test withdraws, s."""


class Echo:
    """Gives each input back as an output of the same name; some sessions do something else instead."""

    backend = "triton://backend:1"
    """That it grants."""
    sessions: Sequence[str] = ("echo", "later", "slow", "broken", *(status.name for status in Status))

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.asks: list[Ask] = []
        self.ended: list[Ended] = []
        self.cancelled = threading.Event()
        self.waiting = threading.Event()

    def ready(self, session: str | None = None) -> bool:
        return session != "slow"

    async def metadata(self, session: str) -> Metadata:
        kinds = (TensorKind("x", "FP32", (-1, 2)), TensorKind("text", "BYTES", (-1, 1)))
        return Metadata(session, ("1", "3"), "python", kinds, kinds)

    async def infer(self, request: Request, write: Callable[[Reply], bytes]) -> bytes:
        self.requests.append(request)
        if request.session == "slow":
            self.waiting.set()
            try:
                await asyncio.sleep(ENDLESS)
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
        if request.session == "later":
            await asyncio.sleep(0.1)
        if request.session == "broken":
            raise RuntimeError("a secret")
        if request.session in Status.__members__:
            raise Refused(Status[request.session], f"it is {request.session}")
        wanted = [one for one in request.inputs if not request.outputs or one.name in request.outputs]
        outputs = [Tensor(one.name, one.datatype, one.shape, one.content) for one in wanted]
        return write(Reply(tuple(outputs), "3"))

    async def grant(self, ask: Ask) -> Grant:
        self.asks.append(ask)
        if ask.session == "slow":
            await asyncio.sleep(ENDLESS)
        if ask.session in Status.__members__:
            raise Refused(Status[ask.session], f"it is {ask.session}")
        grant = Grant(self.backend, "model", 0.5)
        grant.ended.add_done_callback(lambda one: self.ended.append(one.result()))
        return grant


@contextmanager
def running(service: Echo, config: FrontConfig) -> Iterator[Fronts]:
    """Fronts on the loop of another thread, while the context lasts."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def wait(work: object) -> object:
        return asyncio.run_coroutine_threadsafe(work, loop).result(PATIENCE)  # type: ignore[arg-type]

    async def made() -> Fronts:
        fronts = Fronts(service, config, service)
        await fronts.start()
        return fronts

    try:
        fronts = wait(made())
        assert isinstance(fronts, Fronts)
        try:
            yield fronts
        finally:
            wait(fronts.stop())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

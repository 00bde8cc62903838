"""A dispatcher on the loop of another thread, before a fake server, and the target of its control port."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.dispatch.calls import outcome, reply_to
from tests.dispatch.fakes import Bench, bench, request
from tuner.dispatch.control import Control
from tuner.dispatch.dispatcher import Dispatcher
from tuner.dispatch.metrics import Metrics
from tuner.dispatch.request import Reply, Request

__all__ = ["TOKEN", "Running", "target_of"]

TOKEN = "a token of many letters"


class Running:
    """A dispatcher on the loop of another thread.

    Args:
        slo: Of its session, s.
        deferral: How long its batches wait, of what they could.
    """

    def __init__(self, slo: float = 5.0, deferral: float = 0.0) -> None:
        self.slo, self.deferral = slo, deferral
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self.loop).result(120)

    async def _start(self) -> None:
        found, metrics = self._bench(), Metrics()
        self.dispatcher = Dispatcher(found.config, found.connect, metrics, found.warnings.append)
        await self.dispatcher.start()
        control = Control(self.dispatcher, metrics, TOKEN, "127.0.0.1", partial(asyncio.sleep, 0))
        self.control = await control.start(("127.0.0.1", 0))

    def _bench(self) -> Bench:
        return bench({"slo_ms": self.slo * 1e3}, servers=1, options={"deferral": self.deferral})

    @contextmanager
    def loaded(self, rate: float) -> Iterator[None]:
        """Send requests all the time, at a rate per second."""

        async def load() -> None:
            asking: set[asyncio.Task[object]] = set()
            try:
                while True:
                    asking.add(task := asyncio.ensure_future(outcome(reply_to(self.dispatcher, request()))))
                    task.add_done_callback(asking.discard)
                    await asyncio.sleep(1 / rate)
            finally:
                await asyncio.gather(*asking)

        loading = asyncio.run_coroutine_threadsafe(load(), self.loop)
        try:
            yield
        finally:
            loading.cancel()

    def send(self, count: int) -> None:
        async def main() -> None:
            for _ in range(count):
                await reply_to(self.dispatcher, request())

        asyncio.run_coroutine_threadsafe(main(), self.loop).result(60)

    def ask(self, question: Request) -> Reply:
        return asyncio.run_coroutine_threadsafe(reply_to(self.dispatcher, question), self.loop).result(60)

    def stop(self) -> None:
        async def main() -> None:
            await self.control.stop()
            await self.dispatcher.close()

        asyncio.run_coroutine_threadsafe(main(), self.loop).result(60)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


def target_of(running: Running, folder: Path) -> str:
    """Return the target of a dispatcher's control port, with a file for its token in a folder."""
    file = folder / "token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    return f"dispatch://127.0.0.1:{running.control.address[1]}?token_file={file}"

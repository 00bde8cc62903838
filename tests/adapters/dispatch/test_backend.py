"""The adapter of the dispatcher, before a real one with a fake server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.dispatch.fakes import Bench, bench, request
from tests.dispatch.test_dispatcher import outcome
from tuner.adapters.backend import Backend
from tuner.adapters.dispatch import DispatchBackend
from tuner.adapters.registry import Grids
from tuner.dispatch.control import Control
from tuner.dispatch.dispatcher import Dispatcher
from tuner.dispatch.metrics import Metrics
from tuner.errors import InvalidInput, ReadOnly, Unreachable
from tuner.testing import BackendContract

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
                    asking.add(task := asyncio.ensure_future(outcome(self.dispatcher.infer(request()))))
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
                await self.dispatcher.infer(request())

        asyncio.run_coroutine_threadsafe(main(), self.loop).result(60)

    def stop(self) -> None:
        async def main() -> None:
            await self.control.stop()
            await self.dispatcher.close()

        asyncio.run_coroutine_threadsafe(main(), self.loop).result(60)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    found = Running()
    yield found
    found.stop()


@pytest.fixture
def target(running: Running, tmp_path: Path) -> str:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    return f"dispatch://127.0.0.1:{running.control.address[1]}?token_file={file}"


class TestContract(BackendContract):
    """It does all that callers rely on."""

    below = -1.0

    @pytest.fixture
    def backend(self, target: str) -> Iterator[DispatchBackend]:
        found = DispatchBackend(target)
        before = found.current()
        yield found
        found.apply(before)

    @pytest.fixture
    def reopen(self, target: str) -> Callable[[Grids], Backend]:
        return lambda grids: DispatchBackend(target, grids)

    @pytest.fixture
    def traffic(self, running: Running) -> Callable[[int], None]:
        return running.send


def test_limits_of_a_session(target: str) -> None:
    """They are knobs where a grid is given for them."""
    backend = DispatchBackend(target, {"m.max_batch": (2.0, 4.0, 8.0)})
    before = backend.current()

    assert backend.apply(before.replace(**{"m.max_batch": 4.0})).configuration["m.max_batch"] == 4
    backend.apply(before)


def test_without_the_token(target: str) -> None:
    """It observes, and changes nothing."""
    backend = DispatchBackend(target.partition("?")[0])

    assert not backend.describe().writable
    with pytest.raises(ReadOnly, match="token"):
        backend.apply(backend.current().replace(deferral=0.75))


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ("dispatch://127.0.0.1:1", Unreachable),
        ("dispatch://127.0.0.1:9102/model", InvalidInput),
        ("dispatch://127.0.0.1:9102?tls=all", InvalidInput),
        ("dispatch://user:secret@127.0.0.1:9102", InvalidInput),
    ],
)
def test_targets_that_cannot_be_used(target: str, error: type[Exception]) -> None:
    """Each ends with one sentence."""
    with pytest.raises(error):
        DispatchBackend(target)

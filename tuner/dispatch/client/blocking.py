"""Asks for grants from threads that wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

from tuner.dispatch.client.aio import AsyncGrantClient
from tuner.dispatch.client.granted import Granted
from tuner.dispatch.request import TraceContext

__all__ = ["GrantClient"]

T = TypeVar("T")


class GrantClient:
    """An `AsyncGrantClient` for programs without an event loop; any number of threads may use it.

    Its event loop runs in a thread of its own, until :meth:`close`.

    Args:
        address: The dispatcher's ``listen.grpc``, as ``host:port``.
        options: As those of `AsyncGrantClient`.
    """

    def __init__(self, address: str, **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="grants", daemon=True)
        self._thread.start()

        async def made() -> AsyncGrantClient:
            return AsyncGrantClient(address, **options)

        self._client = self._wait(made())

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Let the loop do something; withdraw it if who waits is interrupted."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the conversation, and close the connections to the backends."""
        if self._loop.is_closed():
            return
        self._wait(self._client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @contextmanager
    def grant(
        self,
        session: str,
        *,
        items: int = 1,
        kind: str = "",
        timeout: float | None = None,
        trace: TraceContext | None = None,
    ) -> Iterator[Granted]:
        """Wait until a request may be sent; see `AsyncGrantClient.grant`."""
        grant = self._client.grant(session, items=items, kind=kind, timeout=timeout, trace=trace)
        granted = self._wait(grant.__aenter__())
        try:
            yield granted
        except BaseException as error:
            self._wait(grant.__aexit__(type(error), error, error.__traceback__))
            raise
        self._wait(grant.__aexit__(None, None, None))

    def infer(
        self,
        session: str,
        inputs: Sequence[Any],
        *,
        outputs: Sequence[Any] | None = None,
        timeout: float | None = None,
        trace: TraceContext | None = None,
    ) -> Any:
        """Infer as Triton's own client does; see `AsyncGrantClient.infer`."""
        call = self._client.infer(session, inputs, outputs=outputs, timeout=timeout, trace=trace)
        return self._wait(call)

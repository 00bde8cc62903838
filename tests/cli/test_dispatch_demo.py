"""``tuner demo --dispatch``: what needs no servers."""

from __future__ import annotations

import asyncio

import pytest
from rich.console import Console

from tuner.adapters.triton.embedded import TritonPorts
from tuner.cli.dispatch_demo import _dispatched
from tuner.dispatch.process import DispatchProcess
from tuner.errors import InvalidInput


def test_a_dispatcher_that_cannot_start_ends_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the reason; nobody waits until it listens."""

    async def fails(*_: object) -> None:
        raise InvalidInput("listen.grpc", "127.0.0.1:0 cannot be used")

    async def main() -> None:
        async with asyncio.timeout(60):
            await _dispatched([TritonPorts(grpc=1, http=2, metrics=3)], Console(quiet=True), 0, 1.0)

    monkeypatch.setattr(DispatchProcess, "serve", fails)
    with pytest.raises(InvalidInput, match="cannot be used"):
        asyncio.run(main())

"""The dispatcher as a process."""

from __future__ import annotations

import asyncio
import gc

import pytest

from tests.dispatch.fakes import FakeServer
from tuner.dispatch.config import DispatchConfig
from tuner.dispatch.process import DispatchProcess


def test_the_collector_passes_over_what_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """To look at all modules takes 0.1 s, for which every request would stop; it ends with the process."""
    monkeypatch.setattr("tuner.dispatch.process.connect", lambda _: FakeServer("a:1"))
    config = DispatchConfig.model_validate(
        {
            "listen": {"grpc": "127.0.0.1:0"},
            "sessions": [{"name": "m", "slo_ms": 50.0, "backends": ["triton://a:1/m"]}],
        }
    )

    async def main() -> int:
        process = DispatchProcess(config, lambda _: None)
        started = asyncio.Event()
        serving = asyncio.ensure_future(process.serve(started.set))
        await started.wait()
        left = len(gc.get_objects())
        process.stop()
        await serving
        return left

    left = asyncio.run(main())
    assert left < len(gc.get_objects()) / 10

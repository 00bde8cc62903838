"""The dispatcher as a process."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
from contextlib import closing
from http.client import HTTPConnection

import pytest

from tests.dispatch.fakes import MS, FakeServer
from tuner.dispatch.config import DispatchConfig
from tuner.dispatch.process import DispatchProcess, run_dispatch


def listening(slo: float, **places: str) -> DispatchConfig:
    """A session `m` on one server, with this SLO in ms."""
    session = {"name": "m", "slo_ms": slo, "backends": ["triton://a:1/m"]}
    return DispatchConfig.model_validate({"listen": places, "sessions": [session]})


def test_the_end_answers_what_was_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that is executed gets its answer; one that comes later is refused."""
    server, said = FakeServer("a:1"), list[str]()
    monkeypatch.setattr("tuner.dispatch.process.connect", lambda _: server)

    def ask(address: tuple[str, int]) -> tuple[int, bytes]:
        tensor = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}
        with closing(HTTPConnection(*address, timeout=10)) as connection:
            connection.request("POST", "/v2/models/m/infer", json.dumps({"inputs": [tensor]}))
            answer = connection.getresponse()
            return answer.status, answer.read()

    async def main() -> None:
        process = DispatchProcess(listening(5000.0, http="127.0.0.1:0"), said.append)
        started = asyncio.Event()
        serving = asyncio.ensure_future(process.serve(started.set))
        await started.wait()
        server.stuck = True
        assert process.fronts.http_address is not None
        taken = asyncio.create_task(asyncio.to_thread(ask, process.fronts.http_address))
        while not server.executing:
            await asyncio.sleep(1 * MS)
        process.stop()
        while not any("ending" in sentence for sentence in said):
            await asyncio.sleep(1 * MS)
        late, why = await asyncio.to_thread(ask, process.fronts.http_address)
        server.stuck = False
        assert (late, b"is ending" in why) == (503, True)
        assert (await taken)[0] == 200
        await serving

    asyncio.run(main())


def test_a_second_signal_ends_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while it waits for answers; the first one does not."""
    codes: list[int] = []
    monkeypatch.setattr("tuner.dispatch.process.connect", lambda _: FakeServer("a:1"))
    monkeypatch.setattr(os, "_exit", codes.append)

    def say(sentence: str) -> None:
        if "dispatches m by" in sentence:
            os.kill(os.getpid(), signal.SIGTERM)
        if "ending" in sentence:
            assert not codes
            os.kill(os.getpid(), signal.SIGINT)

    run_dispatch(listening(50.0, grpc="127.0.0.1:0"), say)

    assert codes == [130]


def test_the_collector_passes_over_what_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """To look at all modules takes 0.1 s, for which every request would stop; it ends with the process."""
    monkeypatch.setattr("tuner.dispatch.process.connect", lambda _: FakeServer("a:1"))

    async def main() -> int:
        process = DispatchProcess(listening(50.0, grpc="127.0.0.1:0"), lambda _: None)
        started = asyncio.Event()
        serving = asyncio.ensure_future(process.serve(started.set))
        await started.wait()
        left = len(gc.get_objects())
        process.stop()
        await serving
        return left

    left = asyncio.run(main())
    assert left < len(gc.get_objects()) / 10

"""The process that sends load, within a test's own process and over channels that are made up."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from tests.adapters.certificates import make_certificates
from tests.profiler.inference_service import WIRE, InferenceService, serving
from tests.waiting import LONGEST
from tuner.adapters.connection.endpoint import Endpoint
from tuner.adapters.connection.security import Security
from tuner.profiler.load.timetable import Timetable
from tuner.profiler.load.worker import LoadWorker, Way, _renew
from tuner.workload.notation import parse_arrival


class SilentChannel:
    """A channel to a server that never answers."""

    def __init__(self) -> None:
        self.calls = 0

    def unary_unary(self, method: str) -> Any:
        def call(raw: bytes) -> Any:
            self.calls += 1
            return asyncio.get_running_loop().create_future()

        return call


class Pipe:
    """A pipe that nobody reads."""

    def write(self, data: bytes) -> None:
        pass


def test_requests_without_an_answer_make_room_when_they_are_given_up() -> None:
    """A server that hangs must not end the load, which may go to others meanwhile."""
    channel = SilentChannel()
    channels = [(Endpoint(wire=WIRE, address="a:1", model="mlp"), channel)]
    pipe: Any = Pipe()

    async def send() -> list[int]:
        now = time.monotonic()
        timetable = Timetable(parse_arrival("constant:0.001"), np.random.default_rng(0), now)
        worker = LoadWorker(channels, "/infer", lambda one: b"", timetable, timeout=1000.0, pipe=pipe)
        worker.command({"in_flight": 1})
        worker._send(now - 2000.0)
        worker._send(now)
        before = channel.calls
        worker._flush()
        return [before, channel.calls]

    assert asyncio.run(send()) == [1, 2]


class Moved:
    """A worker that is only told to send over other channels."""

    def __init__(self) -> None:
        self.channels: asyncio.Queue[list[Any]] = asyncio.Queue()

    def move(self, channels: list[Any]) -> None:
        self.channels.put_nowait(channels)


def test_requests_go_by_renewed_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once both files are there, over channels to where the server is by then."""
    monkeypatch.setattr("tuner.profiler.load.worker.LOOK", 0.02)
    make_certificates(tmp_path)
    files = {
        name: (tmp_path / name).read_bytes() for name in ("server.key", "server.crt", "ca.crt", "client.crt")
    }
    pair = [(files["server.key"], files["server.crt"])]
    security = Security(
        grpc=True, ca=tmp_path / "ca.crt", cert=tmp_path / "client.crt", key=tmp_path / "client.key"
    )

    async def main(service: InferenceService) -> None:
        way, worker = Way(replace(service.endpoint(), address="a:1", security=security.options())), Moved()
        way.endpoint = replace(way.endpoint, address=service.address)
        renewing = asyncio.create_task(_renew(worker, way))  # type: ignore[arg-type]
        ((_, before),) = way.open()
        infer = "/inference.GRPCInferenceService/ModelInfer"
        await before.unary_unary(infer)(b"", timeout=LONGEST)
        (tmp_path / "client.crt").write_bytes(files["server.crt"])
        await asyncio.sleep(0.2)
        assert worker.channels.empty()
        (tmp_path / "client.key").write_bytes(files["server.key"])
        ((_, after),) = await asyncio.wait_for(worker.channels.get(), LONGEST)
        await after.unary_unary(infer)(b"", timeout=LONGEST)
        await before.unary_unary(infer)(b"", timeout=LONGEST)
        assert service.shown == [files["client.crt"], files["server.crt"], files["client.crt"]]
        renewing.cancel()
        for channel in (before, after):
            await channel.close()

    credentials = grpc.ssl_server_credentials(pair, files["ca.crt"], require_client_auth=True)
    with serving(credentials) as service:
        asyncio.run(main(service))


def test_each_replica_is_reached_by_its_own_certificates(tmp_path: Path) -> None:
    """Not by those of the first; one whose files are not there is left out until they are."""

    def security(name: str) -> dict[str, str]:
        return Security(grpc=True, ca=tmp_path / name / "ca.crt").options()

    async def main(first: InferenceService, second: InferenceService) -> None:
        one, other = (
            replace(service.endpoint(), security=security(name))
            for service, name in ((first, "first"), (second, "second"))
        )
        way = Way(replace(one, others=[other]))
        channels = way.open()
        for _, channel in channels:
            await channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")(b"", timeout=LONGEST)
        assert not way.changed
        way.endpoint = replace(one, others=[replace(other, security=security("third"))])
        fewer = way.open()
        assert [endpoint.address for endpoint, _ in fewer] == [first.address]
        (tmp_path / "second").rename(tmp_path / "third")
        assert way.changed
        for _, channel in (*channels, *fewer):
            await channel.close()

    credentials = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        make_certificates(tmp_path / name)
        pair = [(tmp_path / name / file).read_bytes() for file in ("server.key", "server.crt")]
        credentials.append(grpc.ssl_server_credentials([(pair[0], pair[1])]))
    with serving(credentials[0]) as first, serving(credentials[1]) as second:
        asyncio.run(main(first, second))

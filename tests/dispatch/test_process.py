"""The dispatcher as a process."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tests.dispatch.fakes import MS, FakeServer
from tests.dispatch.test_reload import config, on, watches
from tuner.dispatch.config import DispatchConfig
from tuner.dispatch.dispatcher import Dispatcher
from tuner.dispatch.process import DispatchProcess, run_dispatch
from tuner.errors import InvalidInput


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
        with closing(HTTPConnection(*address, timeout=60)) as connection:
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


def test_one_that_is_ending_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its control port says so from the first moment on: a load balancer that asks there sends no more."""
    monkeypatch.setattr("tuner.dispatch.process.connect", lambda _: FakeServer("a:1"))

    def get(address: tuple[str, int], path: str) -> tuple[int, bytes]:
        with closing(HTTPConnection(*address, timeout=60)) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()

    async def main() -> None:
        places = {"http": "127.0.0.1:0", "control": "127.0.0.1:0"}
        process = DispatchProcess(listening(5000.0, **places), lambda _: None)
        found: list[tuple[int, bytes]] = []

        async def drain(_longest: float) -> bool:
            paths = ("/readyz", "/healthz")
            found.extend([await asyncio.to_thread(get, process.control.address, path) for path in paths])
            return True

        monkeypatch.setattr(process.fronts, "drain", drain)
        started = asyncio.Event()
        serving = asyncio.ensure_future(process.serve(started.set))
        await started.wait()
        assert (await asyncio.to_thread(get, process.control.address, "/readyz"))[0] == 200
        process.stop()
        await serving
        assert found == [(503, b'{"detail": "the dispatcher is ending"}'), (200, b'{"detail": "ok"}')]

    asyncio.run(main())


def test_changes_need_a_token_that_clients_need_not_have(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`control_token_file` is for the control port alone; without it `token_file` counts there."""
    monkeypatch.setattr("tuner.dispatch.process.connect", lambda _: FakeServer("a:1"))
    files = {name: tmp_path / name for name in ("operators", "clients")}
    for name, file in files.items():
        file.write_text(f"the token of {name}")
        file.chmod(0o600)

    async def statuses(**tokens: str) -> list[int]:
        """Return what a client without a token gets, then a reload with each of the tokens."""
        config = listening(5000.0, http="127.0.0.1:0", control="127.0.0.1:0", **tokens)
        process = DispatchProcess(config, lambda _: None)
        started = asyncio.Event()
        serving = asyncio.ensure_future(process.serve(started.set))
        await started.wait()
        assert process.fronts.http_address is not None
        places = [(process.fronts.http_address, "GET", "/v2/models/m", "")]
        places += [(process.control.address, "POST", "/v1/reload", f"the token of {name}") for name in files]
        found = [await asyncio.to_thread(status, *place) for place in places]
        process.stop()
        await serving
        return found

    def status(address: tuple[str, int], method: str, path: str, token: str) -> int:
        with closing(HTTPConnection(*address, timeout=60)) as connection:
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            connection.request(method, path, headers=headers)
            return connection.getresponse().status

    operators, clients = (str(file) for file in files.values())
    assert asyncio.run(statuses(control_token_file=operators)) == [200, 200, 401]
    assert asyncio.run(statuses(token_file=clients)) == [401, 401, 200]
    assert asyncio.run(statuses(token_file=clients, control_token_file=operators)) == [401, 200, 401]


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

    run_dispatch(lambda: listening(50.0, grpc="127.0.0.1:0"), say)

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


class Written:
    """A file that the test changes."""

    def __init__(self) -> None:
        self.now: Callable[[], DispatchConfig] = lambda: config(on("m", "a"))

    def __call__(self) -> DispatchConfig:
        return self.now()


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> dict[str, FakeServer]:
    """The servers that a process finds."""
    found = {name: FakeServer(name) for name in ("a:1", "b:1")}
    monkeypatch.setattr("tuner.dispatch.process.connect", lambda targets: found[targets[0].split("/")[2]])
    return found


def test_a_file_that_cannot_be_used(servers: dict[str, FakeServer], monkeypatch: pytest.MonkeyPatch) -> None:
    """It changes nothing, and the operator reads why."""

    def mistake() -> DispatchConfig:
        raise InvalidInput("dispatch.yaml line 3", "has a mistake")

    async def main() -> None:
        written, said = Written(), list[str]()
        servers["b:1"].alive = False
        process = DispatchProcess(written(), said.append, None, written)
        started = asyncio.Event()
        serving = asyncio.ensure_future(process.serve(started.set))
        await started.wait()
        pools = list(process.dispatcher.pools)
        other: Any = {"listen": {"grpc": "127.0.0.1:9"}, "sessions": [on("m", "b", slo_ms=9.0)]}
        for now, why in (
            (mistake, "line 3: has a mistake"),
            (lambda: DispatchConfig.model_validate(other), "listen: cannot change while it runs"),
            (lambda: config(on("m", "b"), mode="grants"), "mode: cannot change while it runs"),
            (lambda: config(on("m", "b")), "backends of m: no backend is up: b:1 does not answer"),
        ):
            written.now = now
            with monkeypatch.context() as hasty:
                hasty.setattr(process.dispatcher, "reload", partial(process.dispatcher.reload, wait=0.2))
                with pytest.raises(InvalidInput):
                    await process.reload()
            assert "the file was not reloaded" in said[-1]
            assert why in said[-1]
            assert process.dispatcher.pools == pools
        servers["b:1"].alive = True
        written.now = lambda: config(on("n", "b"))
        await process.reload()
        assert process.dispatcher.sessions == ("n",)
        process.stop()
        await serving

    asyncio.run(main())


def test_the_signal(servers: dict[str, FakeServer]) -> None:
    """SIGHUP reads the file again."""
    written, said = Written(), list[str]()

    def say(sentence: str) -> None:
        said.append(sentence)
        if "dispatches m by" in sentence:
            written.now = lambda: config(on("n", "b"))
            os.kill(os.getpid(), signal.SIGHUP)
        if "dispatches n by" in sentence:
            os.kill(os.getpid(), signal.SIGTERM)

    run_dispatch(written, say)

    assert "dispatches n by symphony" in [one for one in said if one.startswith("dispatches")][1]
    assert said[-1] == "ended"
    assert set(servers) == {"a:1", "b:1"}


def test_a_signal_while_the_file_is_read(servers: dict[str, FakeServer]) -> None:
    """It is read once more, as soon as the dispatcher listens."""
    reads, said = iter(["a", "b"]), list[str]()

    def read() -> DispatchConfig:
        os.kill(os.getpid(), signal.SIGHUP)
        return config(on("m", next(reads)))

    def say(sentence: str) -> None:
        said.extend([sentence] if "dispatches m" in sentence else [])
        if len(said) == 2 and sentence is said[1]:
            os.kill(os.getpid(), signal.SIGTERM)

    run_dispatch(read, say)

    assert len(said) == 2
    assert set(servers) == {"a:1", "b:1"}


def test_a_policy_that_is_compiled_first_is_named(
    servers: dict[str, FakeServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that nobody takes the dispatcher for dead in the minute that the first start may take."""
    waits = threading.Event()
    monkeypatch.setattr("tuner.dispatch.process.SOON", 0.0)
    monkeypatch.setattr("tuner.dispatch.process.compile_policy", lambda *_: waits.wait(60))
    said: list[str] = []

    def say(sentence: str) -> None:
        said.append(sentence)
        waits.set()
        if "dispatches m by" in sentence:
            os.kill(os.getpid(), signal.SIGTERM)

    run_dispatch(lambda: config(on("m", "a")), say)

    assert said[0].startswith("preparing symphony")
    assert said[-1] == "ended"


def test_one_that_is_ended_while_it_begins_never_listens(
    servers: dict[str, FakeServer], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A policy that is being compiled cannot be cut off: what the signal does is said at once."""
    compiled = threading.Event()
    monkeypatch.setattr("tuner.dispatch.process.compile_policy", lambda *_: compiled.wait(60))
    said: list[str] = []
    log = tmp_path / "events.npz"
    log.write_bytes(b"of the run before")

    async def main() -> None:
        process = DispatchProcess(config(on("m", "a")), said.append, log)
        serving = asyncio.create_task(process.serve())
        await asyncio.sleep(0)
        process.stop()
        process.stop()
        assert said == ["ending as soon as the dispatcher is prepared; a second signal ends it at once"]
        compiled.set()
        await serving

    asyncio.run(main())

    assert said[1:] == [f"there were no events: {log} stays as it was", "ended"]
    assert log.read_bytes() == b"of the run before"


@pytest.mark.parametrize("early", [False, True])
def test_a_reload_while_the_dispatcher_begins(
    servers: dict[str, FakeServer], monkeypatch: pytest.MonkeyPatch, early: bool
) -> None:
    """It waits until the dispatcher listens: nothing fails, and no server is watched twice."""
    monkeypatch.setattr(Dispatcher.start, "__defaults__", (0.3,))
    servers["a:1"].alive = False

    async def main() -> None:
        begins = listening(50.0, grpc="127.0.0.1:0", control="127.0.0.1:0")
        said, started = list[str](), asyncio.Event()
        process = DispatchProcess(begins, said.append)
        serving = asyncio.ensure_future(process.serve(started.set))
        while not early and not process.dispatcher.pools:
            await asyncio.sleep(1 * MS)
        reload = asyncio.ensure_future(process.reload())
        await started.wait()
        await reload
        assert len([sentence for sentence in said if sentence.startswith("dispatches m by")]) == 2
        assert watches() == 1
        process.stop()
        await serving

    asyncio.run(main())

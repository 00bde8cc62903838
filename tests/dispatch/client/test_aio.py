"""Grants in virtual time: the scheduler decides, frontends send, and servers merge what they get."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from tests.dispatch.calls import reply_to
from tests.dispatch.client.frontends import Batcher, Pipe, frontend
from tests.dispatch.clock import run
from tests.dispatch.fakes import MS, Bench, bench, request
from tests.dispatch.front.echo import Echo
from tuner.dispatch.backends.connection import Lost
from tuner.dispatch.client import AsyncGrantClient, Refused, Status
from tuner.dispatch.client.aio import GRACE, MOST_TRIES, UNUSED
from tuner.dispatch.grant import Ended


class Load:
    """Requests of several frontends, and what came of them."""

    def __init__(self, found: Bench) -> None:
        self.batchers = {f"triton://{name}": Batcher(server) for name, server in found.servers.items()}
        self.latencies: list[float] = []
        self.refused: list[Refused] = []

    async def ask(self, client: AsyncGrantClient, timeout: float | None = None) -> None:
        loop = asyncio.get_running_loop()
        arrived = loop.time()
        try:
            async with client.grant("m", timeout=timeout) as granted:
                await self.batchers[granted.backend].ask(1)
        except Refused as refused:
            self.refused.append(refused)
        else:
            self.latencies.append(loop.time() - arrived)

    async def offer(self, clients: list[AsyncGrantClient], count: int, rate: float) -> None:
        rng, tasks = np.random.default_rng(0), []
        for number in range(count):
            tasks.append(asyncio.ensure_future(self.ask(clients[number % len(clients)])))
            await asyncio.sleep(float(rng.exponential(1 / rate)))
        await asyncio.gather(*tasks)


def test_servers_merge_what_was_granted_together() -> None:
    """Requests of several frontends arrive in batches, in time, one batch at a server at a time."""

    async def main() -> None:
        found = bench(mode="grants")
        load = Load(found)
        async with found as dispatcher:
            async with frontend(dispatcher) as one, frontend(dispatcher) as other:
                await load.offer([one, other], 600, 800)
            assert not dispatcher.pools[0].waiting("m")
        batches = [items for server in found.servers.values() for _, items in server.batches]
        granted = [items for _, _, items, _ in found.counts.executed_batches]
        assert sum(batches) == sum(granted) == 600 - len(load.refused)
        assert len(load.refused) < 12
        assert sum(batches) / len(batches) > 3
        assert len(batches) == pytest.approx(
            len(granted), rel=0.02
        )  # what was granted together came together
        assert np.quantile(load.latencies, 0.99) <= 50 * MS

    run(main())


def test_what_is_learned() -> None:
    """How long servers work on batches, without the way to them and the frontends' own delays."""

    async def main() -> None:
        found = bench(mode="grants", servers=1)
        load = Load(found)
        async with found as dispatcher:
            async with frontend(dispatcher) as client:
                await load.offer([client], 300, 300)
            table = dispatcher.pools[0].scheduler.policy[0].latency[0, 1]
        for items in (1, 4):
            assert table[items] == pytest.approx((items + 4 + 1) * MS, rel=0.15)  # and the batcher's delay

    run(main())


def test_a_frontend_that_goes_away() -> None:
    """Its requests are withdrawn and its grants end, so that others get the server at once."""

    async def main() -> None:
        found = bench(mode="grants", servers=1, policy="eager")
        load = Load(found)
        async with found as dispatcher:
            gone = frontend(dispatcher)
            held = [gone.grant("m") for _ in range(3)]
            for one in held[:2]:  # the second is sent ahead of the end of the first
                await one.__aenter__()
            waits = asyncio.ensure_future(held[2].__aenter__())
            loop = asyncio.get_running_loop()
            async with frontend(dispatcher) as stays:
                asking = asyncio.ensure_future(load.ask(stays))
                await asyncio.sleep(5 * MS)
                assert dispatcher.pools[0].waiting("m") == 2
                left = loop.time()
                await gone.close()
                with pytest.raises(Refused):
                    await waits
                await asking
                assert loop.time() - left < 10 * MS
            assert len(load.latencies) == 1
            assert found.servers["a:1"].batches == [("m", 1)]

    run(main())


def test_a_silent_frontend_costs_a_while() -> None:
    """A grant whose end nobody reports keeps its server busy until it should have ended long ago."""

    async def main() -> None:
        found = bench(mode="grants", servers=1, policy="eager")
        load = Load(found)
        async with found as dispatcher, frontend(dispatcher) as client:
            silent = [client.grant("m") for _ in range(2)]
            for one in silent:  # the second is sent ahead of the end of the first
                await one.__aenter__()
            await load.ask(client, timeout=1.0)
            assert 100 * MS < load.latencies[0] < 130 * MS
            assert dispatcher.ready("m")

    run(main())


def test_withdrawing() -> None:
    """A cancelled ask leaves the queue; one that is cancelled as the grant comes gives the server back."""

    async def main() -> None:
        found = bench(mode="grants", servers=1, policy="eager")
        load = Load(found)
        async with found as dispatcher, frontend(dispatcher) as client:
            for wait in (0.0, 0.1 * MS, 0.25 * MS, 0.3 * MS, 0.45 * MS, 2 * MS):
                asking = asyncio.ensure_future(load.ask(client))
                await asyncio.sleep(wait)
                asking.cancel()
                await asyncio.sleep(20 * MS)
                assert dispatcher.pools[0].waiting("m") == 0
            await load.ask(client)
            assert load.latencies[0] < 10 * MS

    run(main())


def test_a_backend_that_a_frontend_cannot_reach() -> None:
    """It is probed at once, taken out if it does not answer, and what it did not do goes elsewhere."""

    async def main() -> None:
        found = bench({"slo_ms": 500.0}, mode="grants")
        load = Load(found)
        async with found as dispatcher, frontend(dispatcher) as client:
            await load.offer([client], 100, 400)
            found.servers["a:1"].alive = False
            tried = []
            for _ in range(4):
                async with client.grant("m") as granted:
                    tried.append(granted.address)
                    try:
                        await load.batchers[granted.backend].ask(1)
                    except Lost as error:
                        granted.lost(str(error))
                await asyncio.sleep(1 * MS)
            assert tried[-1] == "b:1"
            assert ("a:1", False) in found.counts.switches

    run(main())


def test_a_request_that_makes_no_sense() -> None:
    """It is refused by itself: who shares the client gets what they ask for. Numbers may be numpy's."""

    async def main() -> None:
        found = bench(mode="grants", servers=1, policy="eager")
        load = Load(found)
        async with found as dispatcher, frontend(dispatcher) as client:
            others = [asyncio.ensure_future(load.ask(client)) for _ in range(4)]
            await asyncio.sleep(3 * MS)
            cases: list[tuple[dict[str, object], type[Exception]]] = [
                ({"items": 0}, Refused),
                ({"items": "1"}, TypeError),
                ({"kind": "x" * 3_000}, Refused),
                ({"kind": "x" * 300_000}, Refused),
                ({"kind": b"x"}, TypeError),
                ({"timeout": float("inf")}, Refused),
                ({"timeout": "soon"}, TypeError),
            ]
            for fields, error in cases:
                with pytest.raises(error):
                    await client.grant("m", **fields).__aenter__()  # type: ignore[arg-type]
            await asyncio.gather(*others)
            async with client.grant("m", items=np.int64(1), timeout=np.float32(0.05)):  # type: ignore[arg-type]
                pass
        assert len(load.latencies) == 4

    run(main())


class Input(NamedTuple):
    """As Triton's client has it."""

    label: str
    width: int

    def name(self) -> str:
        return self.label

    def datatype(self) -> str:
        return "FP32"

    def shape(self) -> list[int]:
        return [1, self.width]


def test_a_request_of_many_inputs() -> None:
    """What such requests must have in common is told in short: alike ones share batches, others do not."""

    class Server:
        async def infer(self, model: str, inputs: list[Input], **options: object) -> str:
            return model

        async def close(self) -> None:
            pass

    async def main() -> None:
        service = Echo()
        client = AsyncGrantClient("nowhere", connect=lambda _: Server(), open_line=lambda: Pipe(service))
        async with client:
            for width in (1, 1, 2):
                inputs = [Input(f"feature_{number:056}", width) for number in range(64)]
                assert await client.infer("echo", inputs) == "model"
        first, second, other = [ask.kind for ask in service.asks]
        assert first == second != other

    run(main())


class Backends:
    """Clients of backends that answer or fail, each in its turn.

    Args:
        statuses: Of the failures, as gRPC names them; an empty one is an answer.
    """

    def __init__(self, *statuses: str) -> None:
        self.left = list(statuses)

    async def infer(self, model: str, inputs: list[Input], **options: object) -> str:
        if status := self.left.pop(0):
            raise InferenceServerException("it failed", status=f"StatusCode.{status}")
        return model

    async def is_model_ready(self, model: str, **options: object) -> bool:
        return False

    async def close(self) -> None:
        pass


async def inferred(backends: Backends, service: Echo) -> object:
    """Infer once; return the answer when the dispatcher has heard of all that was sent."""
    client = AsyncGrantClient("nowhere", connect=lambda _: backends, open_line=lambda: Pipe(service))
    async with client:
        return await client.infer("echo", [Input("x", 1)], timeout=5.0)


@pytest.mark.parametrize("raises", [True, False])
def test_what_a_backend_refused_is_counted(raises: bool) -> None:
    """As refused, and its batch as executed; how long that took teaches nothing."""

    async def main() -> None:
        found = bench(mode="grants", servers=1, policy="eager")
        async with found as dispatcher, frontend(dispatcher) as client:
            learned = dispatcher.pools[0]._beliefs._profiles

            async def ask(*, refuses: bool) -> None:
                async with client.grant("m", kind="k") as granted:
                    await asyncio.sleep(5 * MS)
                    if refuses:
                        granted.refused(Status.INVALID)
                        if raises:
                            raise InferenceServerException("no such shape")

            await ask(refuses=False)  # its kind has a stream now
            await asyncio.sleep(10 * MS)
            calls = [ask(refuses=number == 2) for number in range(4)]
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            await asyncio.sleep(10 * MS)
            assert sum(profile.executions for profile, _ in learned.values()) == 2
        assert [one for one in outcomes if one is not None] == ([outcomes[2]] if raises else [])
        assert [status for _, status, _ in found.counts.ends].count(Status.INVALID) == 1
        assert len(found.counts.ends) == 5
        assert sum(items for _, _, items, _ in found.counts.executed_batches) == 5

    run(main())


def test_connections_to_backends_that_are_gone_are_closed() -> None:
    """Those that were not used for an hour, when another one is opened."""
    closed: list[str] = []

    class Backend:
        def __init__(self, address: str) -> None:
            self.address = address

        async def infer(self, model: str, inputs: list[Input], **options: object) -> str:
            return self.address

        async def close(self) -> None:
            closed.append(self.address)

    async def main() -> None:
        service = Echo()
        async with AsyncGrantClient("nowhere", connect=Backend, open_line=lambda: Pipe(service)) as client:
            for number in range(5):
                service.backend = f"triton://b{number}:1"
                assert await client.infer("echo", [Input("x", 1)]) == f"b{number}:1"
                await asyncio.sleep(0.6 * UNUSED)
            assert closed == ["b0:1", "b1:1", "b2:1"]
            await client.close()
            await asyncio.sleep(2 * UNUSED)
            assert await client.infer("echo", [Input("x", 1)]) == "b4:1"  # it begins a new conversation

    run(main())


def test_a_backend_that_was_down_is_found_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """gRPC itself would wait for up to two minutes; messages may be as large as with Triton's own client."""
    opened: dict[str, list[tuple[str, int]]] = {}

    class Recorder(Backends):
        def __init__(self, address: str, *, channel_args: list[tuple[str, int]]) -> None:
            super().__init__("")
            opened[address] = channel_args

    monkeypatch.setattr("tritonclient.grpc.aio.InferenceServerClient", Recorder)

    async def main() -> None:
        async with AsyncGrantClient("nowhere", open_line=lambda: Pipe(Echo())) as client:
            assert await client.infer("echo", [Input("x", 1)]) == "model"

    run(main())
    ((address, options),) = opened.items()
    assert address == "backend:1"
    assert dict(options)["grpc.max_reconnect_backoff_ms"] <= 1000
    assert [size for name, size in options if name.endswith("_message_length")] == [2**31 - 1] * 2
    assert len(dict(options)) == len(options)


def test_a_backend_that_is_lost_is_replaced() -> None:
    """The dispatcher hears that it was lost, and grants another one."""
    service = Echo()

    assert run(inferred(Backends("UNAVAILABLE", ""), service)) == "model"

    lost, answered = service.ended
    assert "it failed" in lost.lost
    assert (answered.lost, answered.seconds is None) == ("", False)


@pytest.mark.parametrize(
    ("failures", "status"),
    [(["UNAVAILABLE"] * MOST_TRIES, Status.UNAVAILABLE), (["DEADLINE_EXCEEDED"], Status.DEADLINE)],
)
def test_backends_that_give_no_answer(failures: list[str], status: Status) -> None:
    """After a few of them, or when the time is over, the request is refused."""
    backends, service = Backends(*failures, ""), Echo()

    with pytest.raises(Refused) as refused:
        run(inferred(backends, service))

    assert refused.value.status is status
    assert backends.left == [""]
    assert [bool(one.lost) for one in service.ended] == [status is Status.UNAVAILABLE] * len(failures)
    assert [one.seconds for one in service.ended] == [None] * len(failures)


class Slow:
    """A client of a backend that answers nothing: it waits as long as it may."""

    async def infer(self, model: str, inputs: list[Input], client_timeout: float, **options: object) -> str:
        await asyncio.sleep(client_timeout)
        raise InferenceServerException("it failed", status="StatusCode.DEADLINE_EXCEEDED")

    async def close(self) -> None:
        pass


def test_an_answer_that_does_not_come_in_time() -> None:
    """It counts as not answered by the deadline, teaches nothing, and the backend is probed at once."""

    async def main() -> None:
        found = bench({"slo_ms": 50.0}, mode="grants", servers=1, policy="eager")
        async with found as dispatcher:
            found.servers["a:1"].stuck = True
            opened = asyncio.get_running_loop().time()
            async with AsyncGrantClient(
                "nowhere", connect=lambda _: Slow(), open_line=lambda: Pipe(dispatcher)
            ) as client:
                with pytest.raises(Refused, match="did not answer in time") as refused:
                    await client.infer("m", [Input("x", 1)])
                assert refused.value.status is Status.DEADLINE
                await asyncio.sleep(2 * MS)
                assert ("a:1", False) in found.counts.switches
                assert asyncio.get_running_loop().time() < opened + 60 * MS
        assert [(status, seconds > 50 * MS) for _, status, seconds in found.counts.ends] == [
            (Status.DEADLINE, True)
        ]
        assert found.counts.executed_batches == []

    run(main())


@pytest.mark.parametrize(
    ("code", "status"),
    [("INVALID_ARGUMENT", Status.INVALID), ("NOT_FOUND", Status.NOT_FOUND), ("OK", Status.INTERNAL)],
)
def test_what_a_backend_refuses_goes_to_no_other(code: str, status: Status) -> None:
    """The request is at fault; who asked hears why, and the dispatcher that it was refused."""
    backends, service = Backends(code, ""), Echo()

    with pytest.raises(InferenceServerException, match="it failed"):
        run(inferred(backends, service))

    assert backends.left == [""]
    assert service.ended == [Ended(0.0, status=status)]


def test_a_dispatcher_that_does_not_answer() -> None:
    """Who waits hears so in time; a grant that comes later is handed back."""

    async def main() -> None:
        service, loop = Echo(), asyncio.get_running_loop()
        async with AsyncGrantClient("nowhere", open_line=lambda: Pipe(service, delay=0.3)) as client:
            began = loop.time()
            with pytest.raises(Refused, match="the dispatcher did not answer in time") as refused:
                await client.grant("echo", timeout=0.5).__aenter__()
            assert refused.value.status is Status.DEADLINE
            assert loop.time() - began == pytest.approx(0.5 + GRACE)
            await asyncio.sleep(0.4)
            assert service.ended == [Ended()]
            async with client.grant("echo", timeout=0.7) as granted:
                assert granted.address == "backend:1"

    run(main())


def test_a_line_that_takes_no_frame() -> None:
    """Who waits hears so although nothing more comes from the dispatcher; the next one calls it again."""

    class Deaf(Pipe):
        async def write(self, frame: bytes) -> None:
            raise OSError("no space")

    async def main() -> None:
        found = bench(mode="grants", servers=1, policy="eager")
        async with found as dispatcher:
            lines = [Pipe(dispatcher), Deaf(dispatcher)]
            async with asyncio.timeout(60), AsyncGrantClient("nowhere", open_line=lines.pop) as client:
                with pytest.raises(Refused, match=r"the conversation broke: OSError\('no space'\)"):
                    await client.grant("m").__aenter__()
                async with client.grant("m") as granted:
                    assert granted.address == "a:1"

    run(main())


def test_refusals() -> None:
    """Each has its status and its reason; requests with their inputs are refused in this mode."""

    async def main() -> None:
        found = bench({"queue": 3}, mode="grants", servers=1)
        async with found as dispatcher, frontend(dispatcher) as client:
            for session, items, timeout, status in (
                ("nobody", 1, None, Status.NOT_FOUND),
                ("m", 17, None, Status.INVALID),
                ("m", 4, None, Status.INVALID),  # more than the whole queue
                ("m", 1, -1.0, Status.DEADLINE),
                ("m", 1, 1 * MS, Status.DEADLINE),
            ):
                with pytest.raises(Refused) as refused:
                    await client.grant(session, items=items, timeout=timeout).__aenter__()
                assert refused.value.status is status
            with pytest.raises(Refused, match="mode: grants") as refused:
                await reply_to(dispatcher, request())
            assert refused.value.status is Status.UNSUPPORTED

    run(main())

"""A server that refuses what others answer is taken out for a while; what nobody answers takes none out."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import pytest

from tests.dispatch.calls import outcome, reply_to
from tests.dispatch.client.frontends import frontend
from tests.dispatch.clock import run
from tests.dispatch.fakes import MS, Bench, bench, request
from tuner.dispatch.backends.outlier import LONGEST_OUT, SHORTEST_OUT, SUSPICIOUS, Came, Outlier
from tuner.dispatch.client import AsyncGrantClient
from tuner.dispatch.control import Control
from tuner.dispatch.dispatcher import Dispatcher
from tuner.dispatch.knobs import POLICIES
from tuner.dispatch.metrics import Metrics
from tuner.dispatch.pool.sending.granting import GrantSender
from tuner.dispatch.pool.sending.proxy import ProxySender
from tuner.dispatch.request import Refused, Reply, Request, Status, Tensor

GOOD, BAD = b"12345678", b"poison!!"


class Broken:
    """Has a server refuse, at once, the batches of a model that hold some bytes.

    Args:
        found: The bench that it is of.
        address: Of the server.
        model: Of the batches.
        status: Of the refusals.
        holds: What the batches hold.
    """

    def __init__(
        self,
        found: Bench,
        address: str,
        model: str = "m",
        status: Status = Status.INTERNAL,
        holds: bytes = b"",
    ) -> None:
        self.refusals = 0
        self.mended = False
        broken, infer = model, found.servers[address].infer

        async def refuse(model: str, like: Request, inputs: tuple[Tensor, ...]) -> Reply:
            if self.mended or model != broken or not any(holds in tensor.content for tensor in inputs):
                return await infer(model, like, inputs)
            self.refusals += 1
            await asyncio.sleep(0.1 * MS)
            raise Refused(status, f"{address}: its weights are gone")

        found.servers[address].infer = refuse  # type: ignore[method-assign]


async def ask(dispatcher: Dispatcher, content: bytes = GOOD, session: str = "m") -> str:
    """Send a request; return what came of it."""
    found = await outcome(reply_to(dispatcher, request(content, session)))
    return "ok" if isinstance(found, Reply) else found.status.value


async def one_by_one(dispatcher: Dispatcher, count: int, every: float = 10 * MS) -> Counter[str]:
    """Send requests, at most one at a time."""
    came = Counter[str]()
    for _ in range(count):
        came[await ask(dispatcher)] += 1
        await asyncio.sleep(every)
    return came


def out_times(found: Bench) -> list[str]:
    """Return what the operator was told of outliers."""
    mark = ":1 is out for "
    return [one.partition(mark)[2].partition(" s")[0] for one in found.warnings if mark in one]


@pytest.mark.parametrize("status", [Status.INTERNAL, Status.INVALID])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_server_that_fails_on_everything(policy: str, status: Status) -> None:
    """It gets no more than a few requests, though it is always free; those after the first are answered."""

    async def main() -> None:
        found = bench({"slo_ms": 500.0}, policy=policy)
        async with found as dispatcher:
            broken = Broken(found, "a:1", status=status)
            came = await one_by_one(dispatcher, 100)
            came.update(await asyncio.gather(*[ask(dispatcher) for _ in range(50)]))
            assert came[status.value] <= SUSPICIOUS
            assert came["ok"] + came[status.value] == 150
            assert broken.refusals <= SUSPICIOUS + ProxySender.enough + 1

    run(main())


@pytest.mark.parametrize("rate", [50, 400])
def test_a_server_that_fails_under_load(rate: int) -> None:
    """Its requests go to the other one at once; batches are refused as one, and then one by one."""

    async def main() -> None:
        found = bench({"slo_ms": 500.0})
        async with found as dispatcher:
            await one_by_one(dispatcher, 10)
            broken = Broken(found, "a:1")
            tasks = []
            for _ in range(rate):
                tasks.append(asyncio.ensure_future(ask(dispatcher)))
                await asyncio.sleep(1 / rate)
            came = Counter(await asyncio.gather(*tasks))
            assert came["internal"] <= SUSPICIOUS
            assert came["ok"] == rate - came["internal"]
            assert 0 < broken.refusals < 20
            assert found.counts.switches[-1] == ("a:1", False)

    run(main())


def test_how_long_an_outlier_is_out() -> None:
    """It is tried again and again, for one request, which another server answers; at last it stays."""

    async def main() -> None:
        found = bench({"slo_ms": 500.0}, policy="eager")
        async with found as dispatcher:
            broken = Broken(found, "a:1")
            lost, loop = [], asyncio.get_running_loop()
            pool, server = dispatcher.pools[0], dispatcher.pools[0].servers[0]
            was_up, began = True, loop.time()
            came = Counter[str]()
            while loop.time() < began + 850.0:
                came[await ask(dispatcher)] += 1
                if was_up and not server.up:
                    lost.append(loop.time())
                was_up = server.up
                await asyncio.sleep(0.5)
            assert came["internal"] <= SUSPICIOUS
            times = [later - sooner for sooner, later in pairwise(lost)]
            wanted = [10.0, 20.0, 40.0, 80.0, 160.0, 300.0]
            assert times == pytest.approx(wanted, abs=2.0)
            assert (wanted[0], wanted[-1]) == (SHORTEST_OUT, LONGEST_OUT)
            assert out_times(found) == ["10", "20", "40", "80", "160", "300", "300"]
            broken.mended = True
            came = await one_by_one(dispatcher, 200, every=2.0)
            assert [one.up for one in pool.servers] == [True, True]
            assert set(came) == {"ok"}
            assert not server.outlier.suspected("m")

    run(main())


def test_an_outlier_that_worked_for_long_is_out_for_as_long_as_at_first() -> None:
    """Its time grows only if it is one again soon."""

    async def main() -> None:
        found = bench({"slo_ms": 500.0}, policy="eager")
        async with found as dispatcher:
            server = dispatcher.pools[0].servers[0]
            for _ in range(2):
                broken = Broken(found, "a:1")
                await one_by_one(dispatcher, 20)
                assert server.ejected
                assert server.outlier.out == SHORTEST_OUT
                broken.mended = True
                await one_by_one(dispatcher, 25, every=2.0)
                assert server.up
            assert out_times(found) == ["10", "10"]  # each is said

    run(main())


@pytest.mark.parametrize("bad", [0.3, 0.9, 1.0])
@pytest.mark.parametrize("status", [Status.INTERNAL, Status.INVALID])
def test_what_nobody_answers_takes_no_server_out(bad: float, status: Status) -> None:
    """Clients send what cannot be read: every server refuses it, and all stay."""

    async def main() -> None:
        found = bench({"slo_ms": 500.0}, servers=3)
        async with found as dispatcher:
            everywhere = [Broken(found, f"{one}:1", status=status, holds=BAD) for one in "abc"]
            tasks = []
            for number in range(300):
                content = BAD if number % 10 < bad * 10 else GOOD
                tasks.append(asyncio.ensure_future(ask(dispatcher, content)))
                await asyncio.sleep(2 * MS)
            came = Counter(await asyncio.gather(*tasks))
            assert came[status.value] == bad * 300
            assert sum(one.refusals for one in everywhere) < 600  # as batches, one by one, and a few again
        assert {up for _, up in found.counts.switches} == {True}
        assert not found.warnings

    run(main())


def test_servers_that_all_fail_stay() -> None:
    """Nobody answers more than the others."""

    async def main() -> None:
        found = bench({"slo_ms": 500.0}, servers=3)
        async with found as dispatcher:
            broken = [Broken(found, f"{one}:1") for one in "abc"]
            assert await one_by_one(dispatcher, 60) == {"internal": 60}
            assert sum(one.refusals for one in broken) < 80
        assert {up for _, up in found.counts.switches} == {True}

    run(main())


@pytest.mark.parametrize("how", ["fails", "is lost"])
def test_an_outlier_comes_back_where_no_other_is_better(how: str) -> None:
    """A server that answers some sessions is worth more than none."""

    async def main() -> None:
        found = bench({"name": "m", "slo_ms": 500.0}, {"name": "n", "slo_ms": 500.0})
        async with found as dispatcher:
            Broken(found, "a:1", "m")
            await one_by_one(dispatcher, 20)
            server = dispatcher.pools[0].servers[0]
            assert server.ejected
            if how == "fails":
                Broken(found, "b:1", "m")
                Broken(found, "b:1", "n")
            else:
                found.servers["b:1"].alive = False
            for _ in range(20):
                await ask(dispatcher, session="n")
                await asyncio.sleep(0.1)
            assert server.up
            answers = [await ask(dispatcher, session="n") for _ in range(20)]
            assert "ok" in answers

    run(main())


@pytest.mark.parametrize("bad", [0.9, 1.0])
def test_what_nobody_answers_brings_back_no_outlier_of_another_session(bad: float) -> None:
    """It is tried once for that; then it is out for its time."""

    async def main() -> None:
        found = bench({"name": "m", "slo_ms": 500.0}, {"name": "n", "slo_ms": 500.0})
        async with found as dispatcher:
            Broken(found, "a:1", "m")
            for one in "ab":
                Broken(found, f"{one}:1", "n", holds=BAD)
            came = await one_by_one(dispatcher, 20)
            assert dispatcher.pools[0].servers[0].ejected
            loop, number = asyncio.get_running_loop(), 0
            ends = loop.time() + 15.0
            while loop.time() < ends:
                number += 1
                content = BAD if number % 10 < bad * 10 else GOOD
                both = [ask(dispatcher, content, "n"), ask(dispatcher, session="m")]
                came[(await asyncio.gather(*both))[1]] += 1
                await asyncio.sleep(10 * MS)
            assert came["internal"] <= SUSPICIOUS
        assert found.counts.switches.count(("a:1", False)) == 2

    run(main())


def test_one_model_of_a_server_that_is_broken() -> None:
    """What the server answers of the others does not hide it."""

    async def main() -> None:
        found = bench({"name": "m", "slo_ms": 500.0}, {"name": "n", "slo_ms": 500.0})
        async with found as dispatcher:
            Broken(found, "a:1", "m")
            came = Counter[str]()
            for _ in range(30):
                came.update(await asyncio.gather(ask(dispatcher, session="n"), ask(dispatcher, session="m")))
            assert came["internal"] <= SUSPICIOUS
            assert dispatcher.pools[0].servers[0].ejected

    run(main())


def test_what_is_shown_of_an_outlier() -> None:
    """Metrics, the state, and a sentence for the operator."""

    async def main() -> None:
        found = bench({"slo_ms": 500.0})
        async with found as dispatcher:
            metrics = Metrics(asyncio.get_running_loop().time)
            Broken(found, "a:1")
            await one_by_one(dispatcher, 20)
            page = metrics.page(dispatcher.pools).decode()
            assert 'servetune_dispatch_backend_ejected{backend="a:1"} 1.0' in page
            assert 'servetune_dispatch_backend_ejected{backend="b:1"} 0.0' in page
            assert 'servetune_dispatch_backend_up{backend="a:1"} 0.0' in page

            async def reload() -> None: ...

            state = Control(dispatcher, metrics, None, "127.0.0.1", reload).state()
            why = "a:1 is out for 10 s: other backends answer what it refuses; a:1: its weights are gone"
            shown = {"address": "a:1", "up": False, "reason": why}
            assert state["backends"][0] == shown
            assert found.warnings == [f"backend down: {why}"]

    run(main())


def test_a_server_that_answers_while_another_one_is_asked() -> None:
    """It has more than one instance: what it answers meanwhile speaks for it."""

    async def main() -> None:
        found = bench({"slo_ms": 500.0}, instances=2)
        async with found as dispatcher:
            for one in "ab":
                Broken(found, f"{one}:1", holds=BAD)
            contents = [BAD, GOOD] * 50
            came = await asyncio.gather(*[ask(dispatcher, content) for content in contents])
            assert came == ["internal", "ok"] * 50
        assert {up for _, up in found.counts.switches} == {True}

    run(main())


def test_another_server_that_could_not_say_is_asked_again_at_once() -> None:
    """The client went away before it was its turn there: that speaks for neither server."""

    async def main() -> None:
        found = bench({"slo_ms": 500.0}, policy="eager")
        async with found as dispatcher:
            broken = Broken(found, "a:1")
            while broken.refusals < SUSPICIOUS - 1:
                await ask(dispatcher)  # they take turns
            large = asyncio.ensure_future(reply_to(dispatcher, request(items=16)))
            await asyncio.sleep(1 * MS)
            goes = asyncio.ensure_future(ask(dispatcher))
            await asyncio.sleep(5 * MS)
            assert broken.refusals == SUSPICIOUS
            goes.cancel()
            assert isinstance(await large, Reply)
            while broken.refusals == SUSPICIOUS:
                assert await ask(dispatcher) == "ok"

    run(main())


@pytest.mark.parametrize(
    ("came", "again"),
    [(Came.ANSWERED, True), (Came.NOTHING, True), (Came.REFUSED, False), (Came.NOBODY, False)],
)
def test_when_another_server_is_asked_again(came: Came, again: bool) -> None:
    """At the next refusal, or after as many as there were."""
    outlier = Outlier()
    for _ in range(SUSPICIOUS):
        outlier.refused("m")
    assert outlier.questionable("m")

    assert not outlier.compared("m", 0.0, came, 3)

    outlier.refused("m")
    assert outlier.questionable("m") is again
    for _ in range(SUSPICIOUS - 1):
        outlier.refused("m")
    assert outlier.questionable("m")


def test_servers_that_are_suspected_at_the_same_time_do_not_wait_for_each_other() -> None:
    """Each refuses another session, and would ask the other one, which is busy until it has asked."""

    async def main() -> None:
        found = bench({"name": "m", "slo_ms": 500.0}, {"name": "n", "slo_ms": 500.0}, policy="eager")
        async with found as dispatcher:
            broken = [Broken(found, "a:1", "m"), Broken(found, "b:1", "n")]
            loop = asyncio.get_running_loop()
            for _ in range(60):
                began = loop.time()
                came = await asyncio.gather(ask(dispatcher), ask(dispatcher, session="n"))
                assert set(came) <= {"ok", "internal"}
                assert loop.time() - began < 100 * MS
                await asyncio.sleep(10 * MS)
            assert all(one.refusals >= SUSPICIOUS for one in broken)

    run(main())


async def send(client: AsyncGrantClient, found: Bench, content: bytes = GOOD) -> tuple[str, str]:
    """Ask for a grant, and send a request there; return where, and what came of it."""
    async with client.grant("m", timeout=0.5) as granted:
        try:
            await found.servers[granted.address].infer("m", request(content), request(content).inputs)
        except Refused as refused:
            granted.refused(refused.status)
            return granted.address, refused.status.value
    return granted.address, "ok"


def test_frontends_that_are_refused() -> None:
    """A server of which frontends say so again and again is out, if another one answers meanwhile."""

    async def main() -> None:
        found = bench({"slo_ms": 500.0}, mode="grants")
        async with found as dispatcher, frontend(dispatcher) as client:
            Broken(found, "a:1")
            came = Counter([await send(client, found) for _ in range(100)])
            assert came["a:1", "internal"] == SUSPICIOUS + GrantSender.enough - 1
            assert came["b:1", "ok"] == 100 - came["a:1", "internal"]
            assert dispatcher.pools[0].servers[0].ejected

    run(main())


@pytest.mark.parametrize("content", [lambda _: BAD, lambda number: (GOOD, BAD)[number % 2]])
def test_frontends_that_send_what_nobody_answers(content: Callable[[int], bytes]) -> None:
    """All servers stay."""

    async def main() -> None:
        found = bench({"slo_ms": 500.0}, mode="grants")
        async with found as dispatcher, frontend(dispatcher) as client:
            for one in "ab":
                Broken(found, f"{one}:1", status=Status.INVALID, holds=BAD)
            for number in range(100):
                await send(client, found, content(number))
        assert {up for _, up in found.counts.switches} == {True}

    run(main())

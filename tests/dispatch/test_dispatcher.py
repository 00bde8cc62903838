"""The dispatcher before servers in virtual time: each request gets its own answer, or one refusal."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from tests.dispatch.calls import echoes, outcome, payload, poisson, reply_to
from tests.dispatch.clock import run
from tests.dispatch.fakes import MS, FakeServer, bench, request
from tuner.dispatch.backends.connection import Lost, ModelLimits
from tuner.dispatch.backends.server import LONGEST_ORPHAN
from tuner.dispatch.grant import Ask, Ended
from tuner.dispatch.pool.flow import MOST_TRIES
from tuner.dispatch.request import Refused, Reply, Request, Status, Tensor


def test_batches_are_formed_and_taken_apart() -> None:
    """Under load requests share batches; each caller gets its own answer, in time."""

    async def main() -> None:
        found = bench(options={"deferral": 0.25})
        async with found as dispatcher:
            answers = await poisson(dispatcher, 400, 800)
        batches = [items for server in found.servers.values() for _, items in server.batches]
        assert echoes(answers) == 400
        assert sum(batches) == 400
        assert sum(batches) / len(batches) > 4
        assert max(seconds for _, _, seconds in found.counts.ends) <= 50 * MS

    run(main())


def test_unlike_requests_share_no_batch() -> None:
    """Requests with other shapes or parameters go in batches of their own."""

    async def main() -> None:
        found = bench({"slo_ms": 200.0}, servers=1, policy="eager")
        async with found as dispatcher:
            wide = Request("m", (Tensor("x", "FP32", (1, 3), b"x" * 12),))
            marked = request(parameters={"priority": 1})
            for one in (request(), wide, marked):
                await reply_to(dispatcher, one)
            busy = [asyncio.ensure_future(reply_to(dispatcher, marked)) for _ in range(2)]
            await asyncio.sleep(1 * MS)  # the first of them keeps the server busy
            calls = [request(), wide, marked, request(), wide]
            answers = await asyncio.gather(*[reply_to(dispatcher, one) for one in calls])
            await asyncio.gather(*busy)
        assert sorted(items for _, items in found.servers["a:1"].batches) == [1, 1, 1, 1, 2, 2, 2]
        assert [one.outputs[0].shape for one in answers] == [(1, 2), (1, 3), (1, 2), (1, 2), (1, 3)]

    run(main())


def test_requests_of_several_items() -> None:
    """Items of a request stay together, and count; more than the model takes at once are refused."""

    async def main() -> None:
        found = bench(servers=1)
        async with found as dispatcher:
            calls = [reply_to(dispatcher, request(payload(n), items=n)) for n in (1, 3, 5, 4, 2)]
            answers = await asyncio.gather(*calls)
            refused = await outcome(reply_to(dispatcher, request(items=17)))
        assert [one.outputs[0].content for one in answers] == [payload(n) * n for n in (1, 3, 5, 4, 2)]
        assert sum(items for _, items in found.servers["a:1"].batches) == 15
        assert isinstance(refused, Refused)
        assert refused.status is Status.INVALID

    run(main())


def test_a_model_that_does_not_batch() -> None:
    """Each request goes alone, whatever its first dimension is."""

    async def main() -> None:
        found = bench(servers=1)
        found.servers["a:1"].limits_of["m"] = ModelLimits(max_batch=0)
        async with found as dispatcher:
            answers = await asyncio.gather(*[reply_to(dispatcher, request(items=3)) for _ in range(3)])
        assert [items for _, items in found.servers["a:1"].batches] == [3, 3, 3]
        assert {one.outputs[0].shape for one in answers} == {(3, 2)}

    run(main())


@dataclass
class Labelled(FakeServer):
    """Answers with the names of its classes, too, which are the same for all."""

    async def infer(self, model: str, like: Request, inputs: tuple[Tensor, ...]) -> Reply:
        reply = await super().infer(model, like, inputs)
        return Reply((*reply.outputs, Tensor("classes", "UINT8", (3,), b"abc")), reply.version)


@pytest.mark.parametrize("said_by", ["server", "file", "nobody"])
def test_outputs_that_are_the_same_for_all(said_by: str) -> None:
    """Each caller gets the whole; where nobody says that it has no items, a warning does, once."""

    async def main() -> None:
        found = bench({"max_batch": 0} if said_by == "file" else {}, servers=1, policy="eager")
        server = found.servers["a:1"] = Labelled("a:1")
        if said_by == "server":
            server.limits_of = {"m": ModelLimits(max_batch=0)}
        count = 4 if said_by == "nobody" else 3
        async with found as dispatcher:
            await reply_to(dispatcher, request())
            for _ in range(3):
                calls = [reply_to(dispatcher, request(deadline=1e9)) for _ in range(1 + count)]
                answers = await asyncio.gather(*calls)
                assert [one.outputs[1].content for one in answers] == [b"abc"] * len(answers)
        assert len([one for one in found.warnings if "does not batch (output classes" in one]) == (
            said_by == "nobody"
        )
        assert ({items for _, items in server.batches} == {1}) == (said_by != "nobody")

    run(main())


def test_a_model_that_cannot_be_served() -> None:
    """Its server stays down; the operator and who asks hear why."""

    async def main() -> None:
        found = bench(servers=1)
        found.servers["a:1"].limits_of["m"] = ModelLimits(max_batch=8, problem="m is stateful")
        async with found as dispatcher:
            assert not dispatcher.ready("m")
            refused = await outcome(reply_to(dispatcher, request()))
            assert isinstance(refused, Refused)
            assert (refused.status, refused.reason) == (
                Status.UNAVAILABLE,
                "no backend is up: m is stateful",
            )
        assert found.warnings == ["m is stateful"]
        assert found.servers["a:1"].batches == []

    run(main())


def test_deadlines_of_clients() -> None:
    """A nearer deadline is met; a later one is used where the SLO cannot be kept; a past one is refused."""

    async def main() -> None:
        found = bench(servers=1)
        async with found as dispatcher:
            loop = asyncio.get_running_loop()
            began = loop.time()
            await reply_to(dispatcher, request(deadline=began + 15 * MS))
            assert loop.time() - began <= 15 * MS
            past = await outcome(reply_to(dispatcher, request(deadline=began)))
            assert isinstance(past, Refused)
            assert past.status is Status.DEADLINE
            patient = [request(payload(n), deadline=loop.time() + 1.0) for n in range(200)]
            answers = await asyncio.gather(*[outcome(reply_to(dispatcher, one)) for one in patient])
            assert sum(isinstance(one, Reply) for one in answers) == 200

    run(main())


def test_overload_is_refused_with_its_reason() -> None:
    """What cannot be in time is refused by its deadline, what does not fit into the queue at once."""

    async def main() -> None:
        found = bench({"queue": 100}, servers=1)
        async with found as dispatcher:
            answers = await asyncio.gather(*[outcome(reply_to(dispatcher, request())) for _ in range(150)])
        refused = [one for one in answers if isinstance(one, Refused)]
        assert {one.status for one in refused} == {Status.DEADLINE, Status.EXHAUSTED}
        assert max(seconds for _, _, seconds in found.counts.ends) <= 50 * MS + 1e-9
        assert any("SLO of 50 ms: other requests came first" in one.reason for one in refused)
        assert any("queue of m is full" in one.reason for one in refused)

    run(main())


def test_a_request_that_is_larger_than_the_queue() -> None:
    """It is refused as such: the queue is not full, and to ask again is of no use."""

    async def main() -> None:
        async with bench({"queue": 2}, servers=1) as dispatcher:
            refused = await outcome(reply_to(dispatcher, request(items=3)))
            assert isinstance(refused, Refused)
            assert refused.reason == "has 3 items, but the queue of m holds 2"
            assert refused.status is Status.INVALID

    run(main())


def test_a_withdrawn_request_is_not_executed() -> None:
    """Cancelling the call takes the request out of its batch."""

    async def main() -> None:
        found = bench(servers=1)
        async with found as dispatcher:
            await reply_to(dispatcher, request())
            gone = asyncio.ensure_future(reply_to(dispatcher, request(b"8bytes!!")))
            stays = asyncio.ensure_future(reply_to(dispatcher, request()))
            await asyncio.sleep(1 * MS)
            gone.cancel()
            await stays
            assert found.servers["a:1"].batches == [("m", 1)] * 2
            assert dispatcher.pools[0].waiting("m") == 0

    run(main())


@pytest.mark.parametrize("mode", ["proxy", "grants"])
@pytest.mark.parametrize(("at", "ends"), [(10, []), (19, [Status.DEADLINE]), (21, [Status.DEADLINE])])
def test_who_leaves_at_the_deadline_was_not_answered(mode: str, at: float, ends: list[Status]) -> None:
    """It is no withdrawal: clients give up by their own clocks, and a dispatcher that is too slow shows."""

    async def main() -> None:
        found = bench(servers=1, mode=mode)
        async with found as dispatcher:
            found.servers["a:1"].stuck = True
            due = asyncio.get_running_loop().time() + 20 * MS
            if mode == "grants":
                grant = await dispatcher.grant(Ask("m", deadline=due))
                await asyncio.sleep(at * MS)
                grant.end(Ended())
            else:
                call = asyncio.ensure_future(reply_to(dispatcher, request(deadline=due)))
                await asyncio.sleep(at * MS)
                call.cancel()
            await asyncio.sleep(1 * MS)
            assert [status for _, status, _ in found.counts.ends] == ends

    run(main())


def test_one_bad_request_spoils_no_batch() -> None:
    """If a server refuses a batch, its requests go one by one: only the bad one is refused."""

    async def main() -> None:
        found = bench({"slo_ms": 100.0}, servers=1, policy="eager")
        found.servers["a:1"].poison = b"POISONED"
        async with found as dispatcher:
            calls = [request(b"POISONED" if n == 2 else payload(n)) for n in range(5)]
            answers = await asyncio.gather(*[outcome(reply_to(dispatcher, one)) for one in calls])
        assert [type(one) for one in answers] == [Reply, Reply, Refused, Reply, Reply]

    run(main())


def test_a_version_that_no_server_has_takes_none_out() -> None:
    """Who names it is refused; the servers are probed, and all others are answered."""

    async def main() -> None:
        found = bench({"slo_ms": 200.0})
        async with found as dispatcher:
            load = asyncio.ensure_future(poisson(dispatcher, 300, 400))
            for _ in range(10):
                refused = await outcome(reply_to(dispatcher, request(version="99")))
                assert isinstance(refused, Refused)
                assert refused.status is Status.NOT_FOUND
                await asyncio.sleep(20 * MS)
            assert echoes(await load) == 300
        assert found.counts.switches == [("a:1", True), ("b:1", True)]

    run(main())


def test_a_model_that_is_gone_is_noticed_at_once() -> None:
    """The first batch that is refused for it has the server probed; then requests go to the others."""

    async def main() -> None:
        found = bench(policy="eager")
        async with found as dispatcher:
            found.servers["a:1"].unloaded = True
            answers = []
            for number in range(5):
                answers.append(await outcome(reply_to(dispatcher, request(payload(number)))))
                await asyncio.sleep(1 * MS)
            assert [one.status for one in answers if isinstance(one, Refused)] == [Status.NOT_FOUND]
            assert found.counts.switches[2:] == [("a:1", False)]
            found.servers["a:1"].unloaded = False
            await asyncio.sleep(0.5)
        assert found.counts.switches[3:] == [("a:1", True)]

    run(main())


def test_a_bug_costs_one_batch(caplog: pytest.LogCaptureFixture) -> None:
    """An error that nobody expected is logged and refused at once; the server gets the next batch."""

    async def main() -> None:
        found = bench({"slo_ms": 200.0}, servers=1, policy="eager")
        async with found as dispatcher:
            await reply_to(dispatcher, request())
            await asyncio.sleep(1 * MS)
            began = asyncio.get_running_loop().time()
            found.servers["a:1"].broken = True
            answers = await asyncio.gather(*[outcome(reply_to(dispatcher, request())) for _ in range(3)])
            assert asyncio.get_running_loop().time() == began
            found.servers["a:1"].broken = False
            assert isinstance(await reply_to(dispatcher, request()), Reply)
        statuses = [one.status for one in answers if isinstance(one, Refused)]
        assert statuses == [Status.INTERNAL] * 3

    run(main())

    errors = [record.exc_info[0] for record in caplog.records if record.exc_info]
    assert errors == [ZeroDivisionError] * 2  # for two batches


@pytest.mark.parametrize("how", ["dies", "hangs"])
@pytest.mark.parametrize("policy", ["symphony", "eager"])
def test_a_lost_server(how: str, policy: str) -> None:
    """It is taken out and brought back; each request is answered once, with its own payload."""

    async def main() -> None:
        found = bench({"slo_ms": 200.0}, policy=policy)
        async with found as dispatcher:
            load = asyncio.ensure_future(poisson(dispatcher, 1200, 400))
            for _ in range(2):
                await asyncio.sleep(0.8)
                if how == "dies":
                    found.servers["a:1"].alive = False
                else:
                    found.servers["a:1"].stuck = True
                await asyncio.sleep(0.7)
                found.servers["a:1"].alive, found.servers["a:1"].stuck = True, False
            answers = await load
            await asyncio.sleep(1.0)  # the load may end before the server is back
        refused = [one for one in answers if isinstance(one, Refused)]
        assert echoes(answers) + len(refused) == 1200
        assert len(refused) < (60 if how == "dies" else 200)
        assert found.counts.switches.count(("a:1", False)) == 2
        assert found.counts.switches.count(("a:1", True)) == 3

    run(main())


@dataclass
class Hanging(FakeServer):
    """Says that it is ready, and answers no batch until it is let go."""

    go: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: bool = False
    """Whether a batch was cancelled."""

    async def infer(self, model: str, like: Request, inputs: tuple[Tensor, ...]) -> Reply:
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return await super().infer(model, like, inputs)


@pytest.mark.parametrize("answers", [True, False])
def test_a_batch_that_was_given_up(answers: bool) -> None:
    """It is not cancelled, and keeps its server down until it ends, or for 30 s if it does not."""

    async def main() -> None:
        found, hanging = bench(servers=1), Hanging("a:1")
        found.servers["a:1"] = hanging
        async with found as dispatcher:
            (server,) = dispatcher.pools[0].servers
            refused = await outcome(reply_to(dispatcher, request()))
            assert isinstance(refused, Refused)
            while ("a:1", False) not in found.counts.switches:
                await asyncio.sleep(1 * MS)
            await asyncio.sleep(1.0 if answers else LONGEST_ORPHAN - 0.1)
            assert (server.up, hanging.cancelled) == (False, False)
            if answers:
                hanging.go.set()
            await asyncio.sleep(0.5 if answers else 1.0)
            assert (server.up, hanging.cancelled) == (True, not answers)

    run(main())


class Fragile(FakeServer):
    """Every batch kills it; it is there again at once."""

    async def infer(self, model: str, like: Request, inputs: tuple[Tensor, ...]) -> Reply:
        self.batches.append((model, inputs[0].shape[0]))
        raise Lost(f"{self.address}: connection reset")


def test_a_request_that_kills_servers_is_given_up() -> None:
    """After some of them: it must not take them all out."""

    async def main() -> None:
        found = bench({"slo_ms": 5000.0}, servers=MOST_TRIES + 2, policy="eager")
        found.servers = {name: Fragile(name) for name in found.servers}
        async with found as dispatcher:
            refused = await outcome(reply_to(dispatcher, request()))
            assert isinstance(refused, Refused)
            assert refused.status is Status.UNAVAILABLE
            assert sum(len(server.batches) for server in found.servers.values()) == MOST_TRIES
            assert dispatcher.ready("m")

    run(main())


def test_without_servers() -> None:
    """Requests are refused at once as long as no server is up, with the reason."""

    async def main() -> None:
        found = bench(servers=1)
        found.servers["a:1"].alive = False
        async with found as dispatcher:
            assert not dispatcher.ready("m")
            refused = await outcome(reply_to(dispatcher, request()))
            assert isinstance(refused, Refused)
            assert refused.status is Status.UNAVAILABLE
            assert "a:1 does not answer" in refused.reason
            found.servers["a:1"].alive = True
            await asyncio.sleep(1.0)
            assert dispatcher.ready("m")
            await reply_to(dispatcher, request())

    run(main())


def test_items_are_counted_once_a_server_says_whether_there_are_any() -> None:
    """While none is up, nobody knows whether the first dimension is the number of items."""

    async def main() -> None:
        found = bench(servers=1)
        server = found.servers["a:1"]
        server.limits_of, server.alive = {"m": ModelLimits(max_batch=0)}, False
        tensors = (Tensor("x", "FP32", (2,), bytes(8)), Tensor("z", "FP32", (1, 2), bytes(8)))
        async with found as dispatcher:
            refused = await outcome(reply_to(dispatcher, Request("m", tensors)))
            assert isinstance(refused, Refused)
            assert refused.status is Status.UNAVAILABLE
            server.alive = True
            await asyncio.sleep(1.0)
            assert isinstance(await reply_to(dispatcher, Request("m", tensors)), Reply)

    run(main())


@pytest.mark.parametrize("how", ["restarts", "reloads its model", "restarts while it is asked"])
def test_metadata_follow_the_server(how: str) -> None:
    """What a server said is forgotten when it comes or goes, and after some seconds."""

    async def main() -> None:
        found = bench(servers=1)
        server = found.servers["a:1"]
        async with found as dispatcher:
            asked = asyncio.ensure_future(dispatcher.metadata("m"))
            if how == "restarts while it is asked":
                await asyncio.sleep(0)
                dispatcher.pools[0].servers[0].lost("a:1: connection reset")
            assert (await asked).versions == ("1",)
            server.version = "2"
            if how == "restarts":
                dispatcher.pools[0].servers[0].lost("a:1: connection reset")
            await asyncio.sleep(6.0 if how == "reloads its model" else 0.5)
            assert (await dispatcher.metadata("m")).versions == ("2",)
            server.version = "3"
            assert (await dispatcher.metadata("m")).versions == ("2",)  # it is not asked every time

    run(main())


def test_the_end_answers_what_was_taken() -> None:
    """While it closes, requests in the queue are answered, and new ones refused."""

    async def main() -> None:
        found = bench(servers=1)
        async with found as dispatcher:
            taken = asyncio.ensure_future(reply_to(dispatcher, request()))
            await asyncio.sleep(0)
            closing = asyncio.ensure_future(dispatcher.close())
            await asyncio.sleep(0)
            refused = await outcome(reply_to(dispatcher, request()))
            await closing
            assert isinstance(refused, Refused)
            assert refused.status is Status.UNAVAILABLE
            assert isinstance(taken.result(), Reply)

    run(main())

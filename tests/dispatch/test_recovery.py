"""What is assumed, measured or learned keeps requests away only as long as it is true."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.dispatch.calls import largest, outcome, reply_to
from tests.dispatch.clock import VirtualLoop, run
from tests.dispatch.fakes import MS, FakeServer, bench, request
from tuner.dispatch.backends.connection import ModelLimits
from tuner.dispatch.grant import Ask, Ended
from tuner.dispatch.pool.beliefs import LATENESS_LASTS
from tuner.dispatch.pool.profiles import DOUBTED_AFTER, ENOUGH
from tuner.dispatch.request import Refused, Reply


@pytest.mark.parametrize("policy", ["symphony", "eager", "clockwork", "kairos"])
@pytest.mark.parametrize("profile", [None, {"alpha_ms": 1.0, "beta_ms": 300.0}])
def test_deadlines_below_what_is_assumed(policy: str, profile: dict[str, float] | None) -> None:
    """What was never tried keeps no request away: how long batches take is learned although all hurry."""

    async def main() -> None:
        found = bench({"slo_ms": 1000.0, "profile": profile}, servers=1, policy=policy)
        async with found as dispatcher:
            answers = []
            for _ in range(30):
                due = asyncio.get_running_loop().time() + 200 * MS
                answers.append(await outcome(reply_to(dispatcher, request(deadline=due))))
        assert [type(one) for one in answers] == [Reply] * 30

    run(main())


@pytest.mark.parametrize("alone", [True, False])
def test_a_batch_that_is_larger_than_all_before_takes_no_server_out(alone: bool) -> None:
    """Where batches gain nothing it takes many times as long: that is learned, and nobody is lost."""

    async def main() -> None:
        found = bench({"profile": None, "max_batch": 32})
        for server in found.servers.values():
            server.alpha, server.beta = 4 * MS, 1 * MS
            server.limits_of["m"] = ModelLimits(max_batch=32)
        async with found as dispatcher:
            if not alone:
                for _ in range(20):
                    await reply_to(dispatcher, request())
            due = asyncio.get_running_loop().time() + 2.0
            calls = [request(items=32, deadline=due)] if alone else [request(deadline=due)] * 32
            answers = await asyncio.gather(*(outcome(reply_to(dispatcher, one)) for one in calls))
        assert [type(one) for one in answers] == [Reply] * len(calls)
        assert [address for address, up in found.counts.switches if not up] == []

    run(main())


def test_a_deadline_below_what_is_assumed_of_some_servers() -> None:
    """It goes to one that is known to be quick enough, in time, also if batches wait as long as they can."""

    async def main() -> None:
        found = bench({"slo_ms": 400.0, "profile": None}, options={"deferral": 1.0})
        found.servers["b:1"].alive = False
        async with found as dispatcher:
            for _ in range(2 * ENOUGH):
                await reply_to(dispatcher, request())
            found.servers["b:1"].alive = True
            await asyncio.sleep(1.0)
            answers = []
            for _ in range(30):
                due = asyncio.get_running_loop().time() + 50 * MS
                answers.append(await outcome(reply_to(dispatcher, request(deadline=due))))
        assert [type(one) for one in answers] == [Reply] * 30

    run(main())


@pytest.mark.parametrize("policy", ["symphony", "eager"])
def test_a_profile_by_which_nothing_is_in_time(policy: str) -> None:
    """It is given, and wrong: that is learned, and it keeps no request away."""

    async def main() -> None:
        found = bench({"profile": {"alpha_ms": 1.0, "beta_ms": 60.0}}, servers=1, policy=policy)
        async with found as dispatcher:
            answers = [await outcome(reply_to(dispatcher, request())) for _ in range(30)]
        assert [type(one) for one in answers] == [Reply] * 30

    run(main())


@pytest.mark.parametrize("servers", [1, 2])
def test_a_server_of_which_nothing_is_known_and_batches_that_wait_as_long_as_they_can(servers: int) -> None:
    """The first batch of a server shows how long they take; only that may come too late."""

    async def main() -> None:
        found = bench({"slo_ms": 400.0, "profile": None}, servers=servers, options={"deferral": 1.0})
        for server in found.servers.values():
            server.beta = 170 * MS
        async with found as dispatcher:
            answers = []
            for _ in range(30):
                answers.append(await outcome(reply_to(dispatcher, request())))
                await asyncio.sleep(100 * MS)
        assert sum(isinstance(one, Refused) for one in answers) <= servers

    run(main())


def test_what_was_tried_and_takes_too_long_is_refused() -> None:
    """Some requests are tried in vain, and later one now and then; all others are refused at once."""

    async def main() -> None:
        found = bench({"slo_ms": 1000.0, "profile": None}, servers=1)
        server = found.servers["a:1"]
        server.beta = 300 * MS
        reasons = []
        async with found as dispatcher:
            for _ in range(30):
                due = asyncio.get_running_loop().time() + 200 * MS
                refused = await outcome(reply_to(dispatcher, request(deadline=due)))
                assert isinstance(refused, Refused)
                reasons.append(refused.reason)
                await asyncio.sleep(0.5)
        assert reasons[-1] == (
            "could not be executed within the 200 ms that its client gives: "
            "no backend is expected to be quick enough"
        )
        # The first one alone, because its kind has no stream yet, and one after `DOUBTED_AFTER`.
        assert len(server.batches) == 1 + ENOUGH + 1

    run(main())


@pytest.mark.parametrize("policy", ["symphony", "eager", "clockwork"])
@pytest.mark.parametrize(("slow", "deadline"), [(300 * MS, 50 * MS), (13 * MS, 17 * MS)])
def test_a_server_that_has_become_faster_while_all_hurry(policy: str, slow: float, deadline: float) -> None:
    """What was tried keeps requests away for some seconds, and not for ever: one of them shows the change."""

    async def main() -> None:
        found = bench({"slo_ms": 1000.0}, servers=1, policy=policy)
        server = found.servers["a:1"]
        server.beta = slow
        async with found as dispatcher:
            for _ in range(2 * ENOUGH):
                await reply_to(dispatcher, request())
            server.beta = 4 * MS
            answers = []
            for _ in range(100):
                due = asyncio.get_running_loop().time() + deadline
                answers.append(await outcome(reply_to(dispatcher, request(deadline=due))))
                await asyncio.sleep(0.2)
        late = answers[int((DOUBTED_AFTER + 1.0) / 0.2) :]
        assert [type(one) for one in late] == [Reply] * len(late)

    run(main())


@pytest.mark.parametrize("slo_ms", [1000.0, 200.0])
def test_a_spread_that_is_over_while_all_hurry(slo_ms: float) -> None:
    """A server that was slow now and then keeps requests away for some seconds, although most were quick.

    Also if the first that is tried then is late, because it was offered again just before its deadline.
    """

    async def main() -> None:
        found = bench({"slo_ms": slo_ms}, servers=1, policy="eager")
        server = found.servers["a:1"]
        async with found as dispatcher:
            for number in range(60):
                server.beta = 99 * MS if number % 4 == 0 else 9 * MS
                await reply_to(dispatcher, request())
            server.beta = 9 * MS
            answers = []
            for _ in range(100):
                due = asyncio.get_running_loop().time() + 25 * MS
                answers.append(await outcome(reply_to(dispatcher, request(deadline=due))))
                await asyncio.sleep(0.2)
        assert isinstance(answers[10], Refused)
        late = answers[int((DOUBTED_AFTER + 2.0) / 0.2) :]
        assert [type(one) for one in late] == [Reply] * len(late)

    run(main())


@pytest.mark.parametrize(("pauses", "until"), [(1, 0.0), (4, LATENESS_LASTS + 0.5)])
def test_a_pause_of_the_process_keeps_no_request_away_for_ever(pauses: int, until: float) -> None:
    """That timers were late is forgotten: with no request to wait for, no timer shows that they are not."""

    async def main() -> None:
        found = bench({"slo_ms": 400.0}, servers=1, options={"deferral": 1.0})
        async with found as dispatcher:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualLoop)
            await reply_to(dispatcher, request())
            for _ in range(pauses):
                waits = asyncio.ensure_future(outcome(reply_to(dispatcher, request())))
                await asyncio.sleep(1 * MS)
                loop.jumping.now += 10.0
                assert isinstance(await waits, Refused)
            await asyncio.sleep(until)
            answers = [await outcome(reply_to(dispatcher, request())) for _ in range(5)]
        assert [type(one) for one in answers] == [Reply] * 5

    run(main())


def test_frontends_that_were_away_keep_no_request_away_for_ever() -> None:
    """Nobody is granted anything while it is believed that all are away too long."""

    async def main() -> None:
        found = bench(servers=1, mode="grants")
        async with found as dispatcher:
            for _ in range(3):
                grant = await dispatcher.grant(Ask("m"))
                await asyncio.sleep(90 * MS)
                grant.end(Ended(seconds=5 * MS))
            await asyncio.sleep(LATENESS_LASTS + 0.5)
            (await dispatcher.grant(Ask("m"))).end(Ended(seconds=5 * MS))

    run(main())


@pytest.mark.parametrize("policy", ["symphony", "eager"])
def test_a_batch_that_was_slow_by_accident(policy: str) -> None:
    """It does not end batching for ever, although no other one is sent that would show how long they take."""

    async def main() -> None:
        found = bench({"slo_ms": 200.0}, servers=1, policy=policy)
        async with found as dispatcher:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualLoop)
            for _ in range(2 * ENOUGH):
                await reply_to(dispatcher, request())
            calls = [asyncio.ensure_future(outcome(reply_to(dispatcher, request()))) for _ in range(3)]
            if policy == "eager":  # which sends the first one alone
                await calls[0]
            while not found.servers["a:1"].executing:
                await asyncio.sleep(1 * MS)
            loop.jumping.now += 10.0  # our process pauses while a batch of several executes
            await asyncio.gather(*calls)
            for _ in range(int(DOUBTED_AFTER + 5.0)):
                await outcome(reply_to(dispatcher, request()))
                await asyncio.sleep(1.0)
            assert await largest(found, dispatcher, request()) > 4

    run(main())


@pytest.mark.parametrize("policy", ["kairos", "clkwrk"])
@pytest.mark.parametrize(
    "profile", [{"alpha_ms": 1.0, "beta_ms": 500.0}, {"alpha_ms": 20.0, "beta_ms": 60.0}]
)
def test_sizes_of_which_a_wrong_profile_is_assumed(policy: str, profile: dict[str, float]) -> None:
    """It keeps no request away, of whatever size, also under a policy that refuses what would be late."""

    async def main() -> None:
        found = bench({"slo_ms": 200.0, "profile": profile}, policy=policy, options={"refuse": True})
        async with found as dispatcher:
            for items in (16, 2, 1) * 10:
                await reply_to(dispatcher, request(items=items))

    run(main())


def test_what_a_policy_has_learned_keeps_no_request_away_for_ever() -> None:
    """Kairos takes eight items for eight times as long as one, until it has seen another size."""

    async def main() -> None:
        options = {"refuse": True}
        found = bench({"slo_ms": 100.0}, servers=1, policy="kairos", options=options)
        async with found as dispatcher:
            loop = asyncio.get_running_loop()
            for _ in range(2 * ENOUGH):
                await reply_to(dispatcher, request())
            began, answer = loop.time(), None
            while not isinstance(answer, Reply):
                answer = await outcome(reply_to(dispatcher, request(items=8, deadline=loop.time() + 30 * MS)))
                await asyncio.sleep(0.1)
                assert loop.time() < began + DOUBTED_AFTER + 1.0
            assert loop.time() > began + 1.0
            for _ in range(10):
                await reply_to(dispatcher, request(items=8, deadline=loop.time() + 30 * MS))

    run(main())


def test_a_server_that_is_slower_than_anybody_would_wait() -> None:
    """A batch that was given up on shows how long they take when it ends: the server stays, and answers."""

    async def main() -> None:
        found = bench(servers=1)
        found.servers["a:1"].beta = 200 * MS
        async with found as dispatcher:
            answers = []
            for _ in range(30):
                due = asyncio.get_running_loop().time() + 5.0
                answers.append(await outcome(reply_to(dispatcher, request(deadline=due))))
                await asyncio.sleep(1.0)
        assert [type(one) for one in answers[-20:]] == [Reply] * 20
        assert found.counts.switches[-1] == ("a:1", True)

    run(main())


def test_a_server_that_is_slower_than_anybody_would_wait_with_grants() -> None:
    """What frontends say in the end is learned, and the next batch is waited for."""

    async def main() -> None:
        found = bench(servers=1, mode="grants")
        async with found as dispatcher:
            loop = asyncio.get_running_loop()
            for _ in range(5):
                grant = await dispatcher.grant(Ask("m", kind="k", deadline=loop.time() + 5.0))
                await asyncio.sleep(200 * MS)
                grant.end(Ended(200 * MS))
                await asyncio.sleep(1 * MS)
        # Not those that came first: alone, because its kind had no stream yet, and then in its stream.
        assert len(found.counts.executed_batches) == 5 - 2

    run(main())


def test_a_server_that_is_suddenly_much_slower() -> None:
    """One batch that was given up on is enough, however many quick ones came before it."""

    async def main() -> None:
        found = bench(servers=1)
        server = found.servers["a:1"]
        async with found as dispatcher:
            loop = asyncio.get_running_loop()
            for _ in range(5 * ENOUGH):
                await reply_to(dispatcher, request())
            server.beta = 300 * MS
            answers = []
            for _ in range(20):
                answers.append(await outcome(reply_to(dispatcher, request(deadline=loop.time() + 5.0))))
                await asyncio.sleep(1.0)
        assert [type(one) for one in answers[-15:]] == [Reply] * 15
        assert found.counts.switches.count(("a:1", False)) == 1

    run(main())


def test_a_server_that_is_much_slower_than_another_one() -> None:
    """It is not taken for lost over and over."""

    async def main() -> None:
        found = bench({"slo_ms": 100.0})
        found.servers["b:1"].beta = 150 * MS
        async with found as dispatcher:
            loop = asyncio.get_running_loop()
            calls = []
            for second in range(60):
                if second == 30:
                    found.counts.switches.clear()
                for _ in range(20):
                    due = loop.time() + 5.0
                    calls.append(asyncio.ensure_future(outcome(reply_to(dispatcher, request(deadline=due)))))
                    await asyncio.sleep(0.05)
            await asyncio.gather(*calls)
        assert found.counts.switches == []

    run(main())


@pytest.mark.parametrize("hangs", [False, True])
def test_a_pause_of_the_process_takes_no_server_out(hangs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was answered meanwhile is read before the server is judged; one that hangs is lost."""
    infer = FakeServer.infer

    async def far(self: FakeServer, *args: Any) -> Reply:
        """Answer as gRPC does: some turns of the loop after the answer has come."""
        return await asyncio.ensure_future(near(self, *args))

    async def near(self: FakeServer, *args: Any) -> Reply:
        return await asyncio.ensure_future(infer(self, *args))

    monkeypatch.setattr(FakeServer, "infer", far)

    async def main() -> None:
        found = bench(servers=1)
        async with found as dispatcher:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualLoop)
            await reply_to(dispatcher, request())
            found.servers["a:1"].stuck = hangs
            call = asyncio.ensure_future(outcome(reply_to(dispatcher, request(deadline=loop.time() + 30.0))))
            while not found.servers["a:1"].executing:
                await asyncio.sleep(1 * MS)
            loop.jumping.now += 10.0
            answer = await call
        assert isinstance(answer, Refused if hangs else Reply)
        assert found.counts.switches.count(("a:1", False)) == hangs

    run(main())


def test_a_server_that_hung_once() -> None:
    """What a batch took then does not last: it is lost as soon as before when it hangs again."""

    async def main() -> None:
        found = bench(servers=1)
        server = found.servers["a:1"]
        async with found as dispatcher:
            loop = asyncio.get_running_loop()

            async def hang(seconds: float) -> float:
                """Return how long it takes until a server that hangs is lost."""
                server.stuck, began = True, loop.time()
                call = asyncio.ensure_future(outcome(reply_to(dispatcher, request(deadline=began + 20.0))))
                while dispatcher.ready("m"):
                    await asyncio.sleep(5 * MS)
                took = loop.time() - began
                await asyncio.sleep(seconds)
                server.stuck = False
                await call
                await asyncio.sleep(1.0)
                return took

            for _ in range(2 * ENOUGH):
                await reply_to(dispatcher, request())
            first = await hang(10.0)
            for _ in range(2 * ENOUGH):
                await reply_to(dispatcher, request())
            assert await hang(1.0) == pytest.approx(first, abs=10 * MS)

    run(main())

"""Requests that missed their SLO, and whose clients wait on: they hold up no others, and are not lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.dispatch.calls import outcome, reply_to
from tests.dispatch.clock import run
from tests.dispatch.fakes import MS, bench, request
from tuner.dispatch.dispatcher import Dispatcher
from tuner.dispatch.pool.offers import APART, Offers
from tuner.dispatch.pool.pending import Pending
from tuner.dispatch.pool.profiles import ENOUGH
from tuner.dispatch.request import Refused, Reply, Request, Status
from tuner.scheduling.log import ARRIVE


@pytest.mark.parametrize("patient", [150, 450])
def test_patient_requests_take_turns(patient: int) -> None:
    """However many there are under overload, the event loop has no more to do, and the server is busy."""

    async def main() -> None:
        found = bench({"max_batch": 1}, servers=1)
        found.servers["a:1"].beta = 29 * MS
        async with found as dispatcher:
            await reply_to(dispatcher, request())
            due = asyncio.get_running_loop().time() + 3.0
            calls = [reply_to(dispatcher, request(deadline=due)) for _ in range(patient)]
            answers = await asyncio.gather(*calls, return_exceptions=True)
        kinds = [entry["kind"] for one in found.journal.segments for entry in one.log.entries]
        assert kinds.count(ARRIVE) < patient + 3.0 / APART
        assert sum(isinstance(one, Reply) for one in answers) > 0.95 * 3.0 / (30 * MS)
        reasons = {one.reason for one in answers if isinstance(one, Refused)}
        assert len(reasons) == 1
        assert "other requests came first" in reasons.pop()

    run(main())


async def patient_burst(dispatcher: Dispatcher, count: int) -> list[asyncio.Task[Reply | Refused]]:
    """Send requests at once whose clients wait for 20 s, to a server of which the profile is known."""
    for _ in range(2 * ENOUGH):
        await reply_to(dispatcher, request())
    due = asyncio.get_running_loop().time() + 20.0
    calls = [outcome(reply_to(dispatcher, request(deadline=due))) for _ in range(count)]
    return [asyncio.ensure_future(call) for call in calls]


@pytest.mark.parametrize("policy", ["symphony", "eager"])
def test_late_requests_hold_up_no_others(policy: str) -> None:
    """After a burst that nobody could serve in time, new requests are; the late ones are answered later."""

    async def main() -> None:
        found = bench(servers=1, policy=policy)
        async with found as dispatcher:
            burst = await patient_burst(dispatcher, 400)
            await asyncio.sleep(60 * MS)
            overdue = dispatcher.pools[0].overdue("m")
            new = []
            for _ in range(100):
                new += [asyncio.ensure_future(outcome(reply_to(dispatcher, request()))) for _ in range(10)]
                await asyncio.sleep(20 * MS)
            answers = await asyncio.gather(*new)
            late = await asyncio.gather(*burst)
            assert dispatcher.pools[0].overdue("m") == 0
        assert overdue > 300
        assert [type(one) for one in answers] == [Reply] * len(answers)
        assert [type(one) for one in late] == [Reply] * len(late)

    run(main())


@pytest.mark.parametrize("policy", ["symphony", "eager"])
def test_what_waits_has_no_new_slo_before_a_new_scheduler(policy: str) -> None:
    """As where a backend comes or a limit is set: requests that come then are in time all the same."""

    async def main() -> None:
        found = bench(servers=1, policy=policy)
        async with found as dispatcher:
            burst = await patient_burst(dispatcher, 120)
            await asyncio.sleep(15 * MS)
            dispatcher.pools[0].restart()
            await asyncio.sleep(2 * MS)
            new = []
            for _ in range(10):
                new += [asyncio.ensure_future(outcome(reply_to(dispatcher, request()))) for _ in range(6)]
                await asyncio.sleep(20 * MS)
            answers = await asyncio.gather(*new)
            late = await asyncio.gather(*burst)
        assert [type(one) for one in answers] == [Reply] * len(answers)
        assert [type(one) for one in late] == [Reply] * len(late)

    run(main())


def test_how_many_late_requests_may_wait() -> None:
    """As many as the queue holds, each until its client gives up; one that leaves makes room for another."""

    async def main() -> None:
        found = bench({"queue": 100, "max_batch": 1}, servers=1)
        found.servers["a:1"].beta = 29 * MS
        async with found as dispatcher:
            loop, pool = asyncio.get_running_loop(), dispatcher.pools[0]
            await reply_to(dispatcher, request())

            def ask(count: int) -> list[asyncio.Future[Any]]:
                due = loop.time() + 0.5
                return [
                    asyncio.ensure_future(outcome(reply_to(dispatcher, request(deadline=due))))
                    for _ in range(count)
                ]

            first = ask(90)
            await asyncio.sleep(60 * MS)
            for one in first[20:60]:
                one.cancel()
            await asyncio.sleep(1 * MS)
            assert 40 <= pool.overdue("m") <= 50
            second = ask(90)
            await asyncio.sleep(60 * MS)
            assert pool.overdue("m") == 100
            answers = await asyncio.gather(*(first[:20] + first[60:] + second))
            assert pool.overdue("m") == 0
        refused = [one for one in answers if isinstance(one, Refused)]
        full = [one.reason for one in refused if one.status is Status.EXHAUSTED]
        assert len(full) > 20
        assert "other requests came first; 100 such items wait already" in full[0]

    run(main())


def test_what_becomes_of_late_requests_at_a_reload() -> None:
    """They wait at the new backends as they did at the old ones."""

    async def main() -> None:
        found = bench({"backends": ["triton://a:1/m"]}, servers=2)
        async with found as dispatcher:
            loop = asyncio.get_running_loop()
            due = loop.time() + 20.0
            late = [
                asyncio.ensure_future(outcome(reply_to(dispatcher, request(deadline=due))))
                for _ in range(300)
            ]
            await asyncio.sleep(100 * MS)
            overdue = dispatcher.pools[0].overdue("m")
            await dispatcher.reload(bench({"backends": ["triton://b:1/m"], "queue": 100}).config)
            assert abs(dispatcher.pools[0].overdue("m") - overdue) < 20
            answers = [await outcome(reply_to(dispatcher, request())) for _ in range(50)]
            assert [type(one) for one in answers] == [Reply] * 50
            assert [type(one) for one in await asyncio.gather(*late)] == [Reply] * 300
        assert overdue > 200

    run(main())


def test_a_long_slo_keeps_no_other_session_waiting() -> None:
    """Each session's late requests go as soon as that is due by its own SLO."""

    async def main() -> None:
        backends = ["triton://a:1/m"]
        slow = {"name": "slow", "slo_ms": 10_000.0, "backends": backends, "max_batch": 1}
        quick = {"name": "quick", "slo_ms": 50.0, "backends": backends, "max_batch": 1}
        found = bench(slow, quick, servers=1)
        found.servers["a:1"].beta = 29 * MS
        async with found as dispatcher:
            loop = asyncio.get_running_loop()
            for name in ("slow", "quick"):
                await reply_to(dispatcher, request(session=name))
            due = loop.time() + 60.0
            offers = dispatcher.pools[0]._flow.offers
            offers.add(Pending(Request("slow", ()), 1, loop.time(), due, loop.create_future(), None), due, 9)
            began = loop.time()
            calls = [reply_to(dispatcher, request(session="quick", deadline=due)) for _ in range(4)]
            answers = await asyncio.gather(*map(outcome, calls))
            assert loop.time() - began < 1.0
            assert [type(one) for one in answers] == [Reply] * 4

    run(main())


@pytest.mark.parametrize("policy", ["symphony", "eager"])
def test_late_requests_wait_for_no_deferral(policy: str) -> None:
    """However long the SLO is: a server that has nothing to do begins with them at once."""

    async def main() -> None:
        found = bench({"slo_ms": 10_000.0, "max_batch": 8}, servers=1, policy=policy)
        found.servers["a:1"].alpha = found.servers["a:1"].beta = 50 * MS
        async with found as dispatcher:
            for _ in range(2):
                await reply_to(dispatcher, request())
            due = asyncio.get_running_loop().time() + 60.0
            calls = [outcome(reply_to(dispatcher, request(deadline=due))) for _ in range(600)]
            assert [type(one) for one in await asyncio.gather(*calls)] == [Reply] * 600

    run(main())


def test_a_late_request_that_still_waits_holds_up_its_own_session_only() -> None:
    """What was offered last of a session has to be sent before more of it is offered."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        offered: list[Pending] = []

        def offer(one: Pending) -> None:
            one.queued = True
            offered.append(one)

        def late(session: str) -> Pending:
            now = loop.time()
            return Pending(Request(session, ()), 1, now, now + 60.0, loop.create_future(), None)

        offers = Offers(offer, lambda: True, lambda _: 1)
        slow = [late("slow"), late("slow")]
        for one in slow:
            offers.add(one, loop.time(), 9)
        await asyncio.sleep(3 * APART)
        offers.add(quick := late("quick"), loop.time(), 9)
        await asyncio.sleep(3 * APART)
        assert offered == [slow[0], quick]
        slow[0].queued = False
        await asyncio.sleep(3 * APART)
        assert offered == [slow[0], quick, slow[1]]
        offers.close()

    run(main())


def test_what_becomes_of_late_requests_in_an_outage() -> None:
    """They are refused as all others are, for the reason that there is."""

    async def main() -> None:
        found = bench(servers=1)
        async with found as dispatcher:
            due = asyncio.get_running_loop().time() + 20.0
            late = [
                asyncio.ensure_future(outcome(reply_to(dispatcher, request(deadline=due))))
                for _ in range(300)
            ]
            await asyncio.sleep(100 * MS)
            assert dispatcher.pools[0].overdue("m") > 200
            found.servers["a:1"].alive = False
            refused = [one for one in await asyncio.gather(*late) if isinstance(one, Refused)]
        assert len(refused) > 200
        assert {one.status for one in refused} == {Status.UNAVAILABLE}
        assert all("no backend is up" in one.reason or "connection" in one.reason for one in refused)

    run(main())

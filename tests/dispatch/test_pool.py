"""What a pool owes its scheduler: time that goes on, and streams of what can share a batch."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tests.dispatch.calls import largest, reply_to
from tests.dispatch.clock import run
from tests.dispatch.fakes import MS, FakeServer, bench, request
from tuner.dispatch.backends.connection import ModelLimits
from tuner.dispatch.backends.server import ASK_LIMITS, PROBE_UP
from tuner.dispatch.pool.profiles import ENOUGH
from tuner.dispatch.pool.queue import GIVE_WAY, LONGEST_KIND, MOST_KINDS
from tuner.dispatch.request import Refused, Reply, Request, Status, Tensor
from tuner.scheduling.cluster import Delays
from tuner.scheduling.distribution.predictor import predict
from tuner.scheduling.log import ARRIVE


@pytest.mark.parametrize("policy", ["symphony", "eager"])
@pytest.mark.parametrize("change", ["limit", "lost"])
def test_a_timer_of_the_old_scheduler_does_not_move_the_clock(policy: str, change: str) -> None:
    """A new scheduler for which nothing waits is not woken, and takes the next request at its time."""

    async def main() -> None:
        options = {"deferral": 1.0} if policy == "symphony" else {}
        found = bench({"slo_ms": 300.0}, policy=policy, options=options)
        async with found as dispatcher:
            loop, pool = asyncio.get_running_loop(), dispatcher.pools[0]
            call = asyncio.ensure_future(reply_to(dispatcher, request()))
            await asyncio.sleep(1 * MS)
            call.cancel()
            await asyncio.sleep(1 * MS)
            if change == "limit":
                pool.reconfigure(pool.rules, [replace(pool.session("m"), max_batch=8)])
            else:
                pool.servers[1].lost("b:1: connection reset")
            await asyncio.sleep(0.5)
            began = loop.time()
            assert isinstance(await reply_to(dispatcher, request()), Reply)
            assert loop.time() - began <= 0.3

    run(main())


def test_what_is_planned_again_makes_no_timer_late() -> None:
    """A timer for a time that has passed already fires at once; that tells nothing of timers."""

    async def main() -> None:
        found = bench({"slo_ms": 10_000.0}, servers=1)
        async with found as dispatcher:
            pool = dispatcher.pools[0]
            await reply_to(dispatcher, request())
            await asyncio.sleep(0.1)
            call = asyncio.ensure_future(reply_to(dispatcher, request()))
            for _ in range(20):
                await asyncio.sleep(20 * MS)
                pool.reconfigure(pool.rules, pool.sessions)
            assert not call.done()
            assert found.journal.segments[-1].changes[-1].delays.control < 2 * MS
            await call

    run(main())


def test_a_slow_session_spoils_no_fast_one() -> None:
    """Changed knobs, while a request waits in one pool, do not let another one take timers for late."""

    async def main() -> None:
        slow = {"name": "s", "backends": ["triton://a:1/s"], "slo_ms": 10_000.0}
        found = bench(slow, {"name": "f", "backends": ["triton://b:1/f"]})
        async with found as dispatcher:
            loop = asyncio.get_running_loop()
            ends, calls = loop.time() + 60, []

            async def send(session: str, every: float) -> None:
                while loop.time() < ends:
                    calls.append(asyncio.ensure_future(reply_to(dispatcher, request(session=session))))
                    await asyncio.sleep(every)

            async def set_knobs() -> None:
                while loop.time() < ends:
                    for pool in dispatcher.pools:
                        pool.reconfigure(pool.rules, pool.sessions)
                    await asyncio.sleep(0.3)

            await asyncio.gather(send("s", 1.5), send("f", 0.1), set_knobs())
            answers = await asyncio.gather(*calls, return_exceptions=True)
        assert [one for one in answers if not isinstance(one, Reply)] == []

    run(main())


def test_a_pool_that_is_closed_begins_no_scheduler() -> None:
    """A server that is lost while the dispatcher ends sets no timers again."""

    async def main() -> None:
        async with bench() as dispatcher:
            pool = dispatcher.pools[0]
            pool.close()
            pool.servers[1].lost("b:1: connection reset")
            assert not pool.up
            assert pool.why_down() == "no backend is up: b:1: connection reset"

    run(main())


def test_what_a_new_scheduler_cannot_serve_in_time() -> None:
    """It is too late for a request that waited too long; no backend is away."""

    async def main() -> None:
        profile = {"alpha_ms": 1.0, "beta_ms": 80.0}
        found = bench({"slo_ms": 1000.0, "profile": profile}, servers=1, policy="eager")
        async with found as dispatcher:
            loop, pool = asyncio.get_running_loop(), dispatcher.pools[0]
            found.servers["a:1"].beta = 80 * MS
            for _ in range(2 * ENOUGH):
                await reply_to(dispatcher, request())
            busy = asyncio.ensure_future(reply_to(dispatcher, request()))
            await asyncio.sleep(1 * MS)
            late = asyncio.ensure_future(reply_to(dispatcher, request(deadline=loop.time() + 100 * MS)))
            await asyncio.sleep(50 * MS)
            pool.reconfigure(pool.rules, [replace(pool.session("m"), max_batch=8)])
            with pytest.raises(Refused, match="too near for every backend") as refused:
                await late
            assert refused.value.status is Status.DEADLINE
            assert isinstance(await busy, Reply)

    run(main())


def odd(number: int, content: bytes = b"12345678") -> Request:
    """A request of a kind of its own."""
    return Request("m", (Tensor(f"odd{number}", "FP32", (1, 2), content),))


def test_kinds_that_no_server_takes_have_no_stream() -> None:
    """However many requests of them come, others share batches."""

    async def main() -> None:
        found = bench({"slo_ms": 200.0}, servers=1)
        found.servers["a:1"].poison = b"POISONED"
        async with found as dispatcher:
            for number in range(2 * MOST_KINDS):
                with pytest.raises(Refused, match="cannot read"):
                    await reply_to(dispatcher, odd(number, b"POISONED"))
            schedulers = len(found.journal.segments)
            assert await largest(found, dispatcher, request()) > 4
            assert len(found.journal.segments) == schedulers + 1

    run(main())


def test_a_kind_that_is_used_takes_the_place_of_one_that_is_not() -> None:
    """What a server takes has a stream, the last ones that were used; what is in use keeps its own."""

    async def main() -> None:
        found = bench({"slo_ms": 200.0}, servers=1)
        async with found as dispatcher:
            for number in range(MOST_KINDS):
                await reply_to(dispatcher, odd(number))
            assert await largest(found, dispatcher, request()) > 4
            for number in range(3 * MOST_KINDS):
                await reply_to(dispatcher, odd(number))
                await reply_to(dispatcher, request())
                await asyncio.sleep(GIVE_WAY / 4)
            assert await largest(found, dispatcher, request()) > 4
            streams = len(found.journal.segments[-1].spec.sessions)
            assert streams == 1 + MOST_KINDS
            assert len(found.journal.segments) < 4 * MOST_KINDS

    run(main())


def test_a_kind_of_many_words_is_not_kept() -> None:
    """Its requests go one by one: clients choose the words."""

    async def main() -> None:
        found = bench({"slo_ms": 400.0}, servers=1)
        async with found as dispatcher:
            long = request(parameters={"a": "b" * LONGEST_KIND})
            await reply_to(dispatcher, long)
            assert await largest(found, dispatcher, long) == 1
            assert await largest(found, dispatcher, request()) > 4

    run(main())


@pytest.mark.parametrize("items", [1, 5, 20])
@pytest.mark.parametrize("policy", ["kairos", "ribbon", "drs", "clkwrk"])
def test_requests_with_sizes(policy: str, items: int) -> None:
    """The first request of a dispatcher is planned by its size, and so is each of a kind without a stream."""

    async def main() -> None:
        found = bench({"slo_ms": 200.0}, servers=1, policy=policy)
        found.servers["a:1"].limits_of["m"] = ModelLimits(max_batch=32)
        async with found as dispatcher:
            (spec,) = found.journal.segments[0].spec.sessions
            assert spec.latency.shape == (1, 1 + 32)
            for _ in range(2):
                await reply_to(dispatcher, request(items=items))
                await asyncio.sleep(0.1)
        assert found.servers["a:1"].batches == [("m", items)] * 2

    run(main())


@pytest.mark.parametrize("policy", ["kairos", "ribbon", "drs", "clkwrk"])
def test_a_limit_below_a_request_that_waits(policy: str) -> None:
    """It is planned as the largest that the limit allows, and answered in one piece."""

    async def main() -> None:
        found = bench({"slo_ms": 400.0}, servers=1, policy=policy)
        async with found as dispatcher:
            calls = [asyncio.ensure_future(reply_to(dispatcher, request(items=15))) for _ in range(2)]
            await asyncio.sleep(1 * MS)
            pool = dispatcher.pools[0]
            pool.reconfigure(pool.rules, [replace(pool.session("m"), max_batch=4)])
            await asyncio.gather(*calls)
        assert found.servers["a:1"].batches == [("m", 15)] * 2
        planned = [entry for one in found.journal.segments for entry in one.log.entries]
        sizes = [int(entry["items"]) for entry in planned if entry["kind"] == ARRIVE]
        assert sizes[:2] == [15, 15]
        assert set(sizes[2:]) == {4}

    run(main())


def test_entries_without_a_request_end_in_their_turn() -> None:
    """What a request of several items leaves in the queue ends no batch that is on its way."""

    async def main() -> None:
        found = bench({"slo_ms": 60.0}, servers=1, policy="eager")
        async with found as dispatcher:
            calls = []
            for _ in range(20):
                calls.append(asyncio.ensure_future(reply_to(dispatcher, request(items=6))))
                await asyncio.sleep(11 * MS)
            await asyncio.gather(*calls)
        seconds = [seconds for *_, seconds in found.counts.executed_batches]
        assert seconds == [pytest.approx((6 + 4) * MS, abs=0.2 * MS)] * 20

    run(main())


def learned(policy: str, state: Any) -> float:
    """How much a policy has learned by itself of the kind that came last."""
    return float(state.predictor.lines[0, -1].seen if policy == "kairos" else state.learned[-1, 0].limit)


@pytest.mark.parametrize("policy", ["kairos", "clipper"])
def test_what_a_policy_has_learned_outlives_a_change_of_something_else(policy: str) -> None:
    """The scheduler goes on with another queue, profile or delay; another batch limit begins a new one."""

    async def main() -> None:
        found = bench({"slo_ms": 200.0}, servers=1, policy=policy)
        async with found as dispatcher:
            for _ in range(20):
                await reply_to(dispatcher, request())
            pool = dispatcher.pools[0]
            assert pool.scheduler is not None
            before, schedulers = learned(policy, pool.scheduler.policy), len(found.journal.segments)
            assert before > 1
            delays = Delays(control=1 * MS, response=1 * MS)
            limits = replace(pool.session("m"), queue=7, prior=(1 * MS, 9 * MS))
            pool.reconfigure(replace(pool.rules, delays=delays), [limits])
            assert learned(policy, pool.scheduler.policy) == before
            assert len(found.journal.segments) == schedulers
            assert found.journal.segments[-1].changes[-1].delays == delays
            pool.reconfigure(pool.rules, [replace(limits, max_batch=8)])
            assert len(found.journal.segments) == schedulers + 1
            await reply_to(dispatcher, request())
        assert [one.replay() for one in found.journal.segments] == [None] * len(found.journal.segments)

    run(main())


@pytest.mark.parametrize("network", [None, {"control_ms": 0.0, "response_ms": 0.0}])
def test_what_was_not_executed_teaches_nothing(network: dict[str, float] | None) -> None:
    """Requests that expire before they are sent end at once; Kairos learns from the others."""

    async def main() -> None:
        found = bench({"slo_ms": 50.0}, servers=1, policy="kairos", network=network)
        async with found as dispatcher:
            for rate, count in ((40, 20), (400, 100)):
                calls = []
                for _ in range(count):
                    calls.append(asyncio.ensure_future(reply_to(dispatcher, request(items=16))))
                    await asyncio.sleep(1 / rate)
                answers = await asyncio.gather(*calls, return_exceptions=True)
            assert sum(isinstance(one, Refused) for one in answers) > 50
            scheduler = dispatcher.pools[0].scheduler
            assert scheduler is not None
            predictor = scheduler.policy.predictor
            believed = predict(predictor, 0, predictor.lines.shape[1] - 1, 16)
            assert believed == pytest.approx((16 + 4) * MS, rel=0.1)
        assert [one.replay() for one in found.journal.segments] == [None] * len(found.journal.segments)

    run(main())


class StrictServer(FakeServer):
    """A server that refuses batches above its limit."""

    refused = 0

    async def infer(self, model: str, like: Request, inputs: tuple[Tensor, ...]) -> Reply:
        largest = (await self.limits(model, 1.0)).max_batch
        if largest is not None and inputs[0].shape[0] > largest:
            self.refused += 1
            raise Refused(Status.INVALID, f"{self.address}: at most {largest} items")
        return await super().infer(model, like, inputs)


@pytest.mark.parametrize("limit", [4, 8])
def test_a_model_that_is_deployed_anew_has_its_new_limit(limit: int) -> None:
    """The server does not go down meanwhile; it gets no batch above the limit, and batches up to it."""

    async def main() -> None:
        found = bench({"slo_ms": 400.0}, servers=1)
        server = found.servers["a:1"] = StrictServer("a:1", limits_of={"m": ModelLimits(max_batch=6)})
        async with found as dispatcher:
            await reply_to(dispatcher, request())
            assert await largest(found, dispatcher, request()) == 6
            server.limits_of["m"] = ModelLimits(max_batch=limit)
            await asyncio.sleep(ASK_LIMITS + PROBE_UP)
            assert await largest(found, dispatcher, request()) == limit
        assert server.refused == 0
        assert ("a:1", False) not in found.counts.switches

    run(main())


def test_a_model_that_is_deployed_anew_and_cannot_be_served() -> None:
    """Its server is taken out, and the operator hears why; it is back with a model that can."""

    async def main() -> None:
        found = bench({"slo_ms": 400.0})
        server = found.servers["a:1"]
        async with found as dispatcher:
            for problem in ("m is stateful", ""):
                server.limits_of["m"] = ModelLimits(max_batch=16, problem=problem)
                await asyncio.sleep(ASK_LIMITS + PROBE_UP)
                assert dispatcher.pools[0].servers[0].up is not bool(problem)
        assert found.warnings == ["backend down: m is stateful", "backend up: a:1"]

    run(main())


class FarServer(FakeServer):
    """A server whose answers are on their way for 2 ms, as are the questions."""

    async def infer(self, model: str, like: Request, inputs: tuple[Tensor, ...]) -> Reply:
        await asyncio.sleep(2 * MS)
        reply = await super().infer(model, like, inputs)
        await asyncio.sleep(2 * MS)
        return reply

    async def ready(self, model: str, timeout: float) -> bool:
        await asyncio.sleep(4 * MS)
        return True


def test_the_way_does_not_count_as_execution() -> None:
    """Also of a batch that was sent ahead, and begins where the one before ends."""

    async def main() -> None:
        found = bench({"slo_ms": 60.0}, servers=1)
        found.servers["a:1"] = FarServer("a:1")
        async with found as dispatcher:
            calls = []
            for _ in range(100):
                calls.append(asyncio.ensure_future(reply_to(dispatcher, request())))
                await asyncio.sleep(5 * MS)
            await asyncio.gather(*calls)
        executed = found.counts.executed_batches
        assert executed
        assert [seconds for *_, seconds in executed] == pytest.approx(
            [(items + 4) * MS for _, _, items, _ in executed]
        )

    run(main())

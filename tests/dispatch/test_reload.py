"""A dispatcher gets another configuration while it works: no request is lost."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.dispatch.calls import echoes, outcome, poisson, reply_to
from tests.dispatch.clock import run
from tests.dispatch.fakes import MS, Bench, FakeServer, bench, request
from tuner.dispatch.backends.connection import Connection, Lost, ModelLimits
from tuner.dispatch.config import DispatchConfig
from tuner.dispatch.dispatcher import Dispatcher
from tuner.dispatch.metrics import Metrics
from tuner.dispatch.request import Metadata, Refused, Reply, Status
from tuner.errors import InvalidInput, StorageError


def on(name: str, *servers: str, **more: object) -> dict[str, object]:
    """A session on some servers."""
    return {"name": name, "backends": [f"triton://{one}:1/{name}" for one in servers], **more}


def config(*sessions: dict[str, object], **settings: object) -> DispatchConfig:
    return bench(*sessions, **settings).config  # type: ignore[arg-type]


def executed(found: Bench) -> dict[str, set[str]]:
    return {name: {model for model, _ in server.batches} for name, server in found.servers.items()}


def watches() -> int:
    """How many servers are watched."""
    coroutines = [task.get_coro() for task in asyncio.all_tasks()]
    return sum(getattr(one, "__qualname__", "") == "WatchedServer.watch" for one in coroutines)


def test_backends_and_sessions_come_and_go() -> None:
    """Under load each request is answered, with its own payload, by the servers of the day."""

    async def main() -> None:
        found = bench(on("m", "a", "b", slo_ms=200.0), on("old", "a", "b"), servers=4)
        async with found as dispatcher:
            load = asyncio.ensure_future(poisson(dispatcher, 900, 600))
            await asyncio.sleep(0.4)
            old = asyncio.ensure_future(reply_to(dispatcher, request(session="old")))
            await asyncio.sleep(0)
            await dispatcher.reload(config(on("m", "b", "c", slo_ms=200.0), on("new", "d")))
            assert set(dispatcher.sessions) == {"m", "new"}
            assert isinstance(await old, Reply)
            gone = await outcome(reply_to(dispatcher, request(session="old")))
            assert isinstance(gone, Refused)
            assert gone.status is Status.NOT_FOUND
            await reply_to(dispatcher, request(session="new"))
            for server in found.servers.values():
                server.batches.clear()
            await asyncio.sleep(0.4)
            assert executed(found) == {"a:1": set(), "b:1": {"m"}, "c:1": {"m"}, "d:1": set()}
            await dispatcher.reload(config(on("m", "a", "b", "c", "d", slo_ms=200.0)))
            assert echoes(await load) == 900
            assert len(dispatcher.pools) == 1
        assert {name for name, models in executed(found).items() if models} == set(found.servers)

    run(main())


def test_what_stays_is_not_disturbed() -> None:
    """A pool with the same sessions and backends goes on, with its new limits and SLOs."""

    async def main() -> None:
        found = bench(on("m", "a"), on("n", "b"), servers=3)
        async with found as dispatcher:
            stays, goes = dispatcher.pools
            await dispatcher.reload(config(on("m", "a", slo_ms=20.0, queue=5), on("n", "c"), policy="eager"))
            assert dispatcher.pools[0] is stays
            assert goes not in dispatcher.pools
            assert stays.rules.policy == "eager"
            assert (stays.session("m").slo, stays.session("m").queue) == (20 * MS, 5)
            answers = await asyncio.gather(*[outcome(reply_to(dispatcher, request())) for _ in range(7)])
            assert sum(isinstance(one, Refused) and one.status is Status.EXHAUSTED for one in answers) >= 1

    run(main())


def believed(dispatcher: Dispatcher) -> np.ndarray:
    """What the first pool's scheduler believes of the kind that came last, by batch size.   # (B+1,) s."""
    scheduler = dispatcher.pools[0].scheduler
    assert scheduler is not None
    table: np.ndarray = scheduler.policy[0].latency[0, -1]
    return table


@pytest.mark.parametrize("policy", ["symphony", "eager"])
def test_what_is_assumed_follows_the_file(policy: str) -> None:
    """Another SLO, or a corrected profile, counts at once where nothing was learned."""

    async def main() -> None:
        found = bench(on("m", "a", slo_ms=1000.0, profile=None), servers=1, policy=policy)
        async with found as dispatcher:
            assert believed(dispatcher)[1] == pytest.approx(0.25, rel=0.1)
            await dispatcher.reload(config(on("m", "a", slo_ms=200.0, profile=None), policy=policy))
            assert believed(dispatcher)[1] == pytest.approx(0.05, rel=0.1)
            profiles = [{"alpha_ms": 1.0, "beta_ms": beta} for beta in (80.0, 4.0)]
            for profile in profiles:
                await dispatcher.reload(config(on("m", "a", slo_ms=200.0, profile=profile), policy=policy))
                assert believed(dispatcher)[1] == pytest.approx((1.0 + profile["beta_ms"]) * MS)
            assert isinstance(await reply_to(dispatcher, request()), Reply)

    run(main())


def test_what_was_learned_stays_when_the_limit_changes() -> None:
    """Of the sizes that there are; a smaller largest batch is no other model."""

    async def main() -> None:
        wrong = {"alpha_ms": 0.0, "beta_ms": 40.0}
        found = bench(on("m", "a", slo_ms=200.0, profile=wrong), servers=1)
        async with found as dispatcher:
            for _ in range(20):
                await reply_to(dispatcher, request())
            for limit in (8, 4, 12):
                limited = on("m", "a", slo_ms=200.0, profile=wrong, max_batch=limit)
                await dispatcher.reload(config(limited))
                assert believed(dispatcher)[1] == pytest.approx((1 + 4) * MS, rel=0.1)

    run(main())


def test_a_backend_that_cannot_be_connected_changes_nothing() -> None:
    """Not even the limits of sessions that could go on; what was begun for the others ends."""

    async def main() -> None:
        found = bench(on("m", "a"), servers=2)
        connect = found.connect

        def unreadable(targets: Sequence[str]) -> Connection:
            if "/broken" in targets[0]:
                raise StorageError("ca.pem cannot be read")
            return connect(targets)

        found.connect = unreadable
        async with found as dispatcher:
            before, pools = asyncio.all_tasks(), list(dispatcher.pools)
            with pytest.raises(StorageError, match="cannot be read"):
                await dispatcher.reload(config(on("m", "a", queue=7), on("new", "b"), on("broken", "c")))
            assert dispatcher.pools == pools
            assert pools[0].session("m").queue == 1000
            assert dispatcher.sessions == ("m",)
            assert asyncio.all_tasks() == before
            await reply_to(dispatcher, request())

    run(main())


def test_backends_that_do_not_come_up_change_nothing() -> None:
    """Not even the limits of other sessions; what waits is answered by the backends that there are."""

    async def main() -> None:
        found = bench(on("m", "a", slo_ms=5000.0), on("n", "b"), servers=4, options={"deferral": 1.0})
        found.servers["c:1"].alive = False
        async with found as dispatcher:
            before, pools = watches(), list(dispatcher.pools)
            wanted = config(on("m", "c", slo_ms=5000.0), on("n", "b", queue=7), on("new", "d"), servers=4)
            reload = asyncio.ensure_future(dispatcher.reload(wanted, 1.0))
            await asyncio.sleep(0.5)
            calls = [asyncio.ensure_future(reply_to(dispatcher, request())) for _ in range(5)]
            with pytest.raises(InvalidInput, match="backends of m: no backend is up: c:1 does not answer"):
                await reload
            assert dispatcher.pools == pools
            assert dispatcher.config is found.config
            assert pools[1].session("n").queue == 1000
            assert dispatcher.sessions == ("m", "n")
            assert all(isinstance(one, Reply) for one in await asyncio.gather(*calls))
            assert watches() == before

    run(main())


def test_backends_may_come_up_later_where_nothing_is_lost() -> None:
    """A new session, and one whose backends are away, wait for theirs after the reload."""

    async def main() -> None:
        found = bench(on("m", "a"), servers=3)
        async with found as dispatcher:
            for server in found.servers.values():
                server.alive = False
            await asyncio.sleep(5.0)
            await dispatcher.reload(config(on("m", "b"), on("new", "c"), servers=3), 1.0)
            assert dispatcher.sessions == ("m", "new")
            found.servers["b:1"].alive = True
            await asyncio.sleep(1.0)
            assert isinstance(await reply_to(dispatcher, request()), Reply)

    run(main())


def test_a_reload_that_meets_the_end() -> None:
    """It changes nothing, and what it has begun ends, too."""

    async def main() -> None:
        found = bench(on("m", "a"), servers=3)
        found.servers["c:1"].alive = False
        async with found as dispatcher:
            reload = asyncio.ensure_future(
                dispatcher.reload(config(on("m", "b"), on("n", "c"), servers=3), 1.0)
            )
            await asyncio.sleep(0.1)
            await dispatcher.close()
            with pytest.raises(InvalidInput, match="the dispatcher is ending"):
                await reload
            assert dispatcher.sessions == ("m",)
            assert watches() == 0

    run(main())


def test_a_reload_that_is_broken_off() -> None:
    """It changes nothing, and the backends that it has begun to probe are left alone again."""

    async def main() -> None:
        found = bench(on("m", "a"), servers=2)
        found.servers["b:1"].alive = False
        async with found as dispatcher:
            before, pools = watches(), list(dispatcher.pools)
            reload = asyncio.ensure_future(dispatcher.reload(config(on("m", "b"))))
            await asyncio.sleep(0.1)
            assert watches() == before + 1
            reload.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reload
            assert watches() == before
            assert dispatcher.pools == pools
            await reply_to(dispatcher, request())

    run(main())


def test_what_waits_goes_on_elsewhere() -> None:
    """Requests that wait for a slow server are sent to the servers of the new configuration."""

    async def main() -> None:
        found = bench(on("m", "a", slo_ms=400.0), servers=2, policy="eager")
        async with found as dispatcher:
            found.servers["a:1"].beta = 0.1
            calls = [asyncio.ensure_future(outcome(reply_to(dispatcher, request()))) for _ in range(40)]
            await asyncio.sleep(1 * MS)
            await dispatcher.reload(config(on("m", "b", slo_ms=400.0), policy="eager"))
            answers = await asyncio.gather(*calls)
            assert sum(isinstance(one, Reply) for one in answers) == 40
            assert sum(items for _, items in found.servers["b:1"].batches) >= 20

    run(main())


@pytest.mark.parametrize("renewed", [False, True])
def test_what_waits_is_not_refused_for_the_limits_of_a_file(tmp_path: Path, renewed: bool) -> None:
    """Neither if the new file has a shorter queue, nor if knobs were set beyond the present one."""

    async def main() -> None:
        (certificate := tmp_path / "ca.pem").write_text("old")
        target = f"triton://a:1/m?tls=grpc&ca={certificate}"
        limits: dict[str, Any] = {"slo_ms": 5000.0, "queue": 4, "max_batch": 2}
        found = bench({"name": "m", "backends": [target], **limits}, servers=2, policy="eager")
        async with found as dispatcher:
            found.servers["a:1"].beta = 0.1
            pool = dispatcher.pools[0]
            pool.reconfigure(pool.rules, [replace(pool.session("m"), queue=1000, max_batch=8)])
            sizes = [1] * 40 + [8]
            calls = [asyncio.ensure_future(outcome(reply_to(dispatcher, request(items=n)))) for n in sizes]
            await asyncio.sleep(1 * MS)
            if renewed:
                certificate.write_text("another one")
                await dispatcher.renew()
            else:
                await dispatcher.reload(config(on("m", "b", **{**limits, "max_batch": 4}), policy="eager"))
            assert dispatcher.pools[0] is not pool
            assert [type(one) for one in await asyncio.gather(*calls)] == [Reply] * len(sizes)
            assert dispatcher.pools[0].session("m").queue == (1000 if renewed else 4)

    run(main())


def test_what_an_old_server_loses_goes_on_elsewhere() -> None:
    """A server that the new configuration lacks may be stopped at once: what it had goes to the new ones."""

    async def main() -> None:
        found = bench(on("m", "a", slo_ms=2000.0), servers=2, policy="eager")
        async with found as dispatcher:
            found.servers["a:1"].beta = 0.1
            calls = [asyncio.ensure_future(outcome(reply_to(dispatcher, request()))) for _ in range(5)]
            await asyncio.sleep(20 * MS)
            assert found.servers["a:1"].executing
            await dispatcher.reload(config(on("m", "b", slo_ms=2000.0), policy="eager"))
            found.servers["a:1"].alive = False
            assert [type(one) for one in await asyncio.gather(*calls)] == [Reply] * 5
        assert sum(items for _, items in found.servers["b:1"].batches) == 5

    run(main())


def test_backends_that_are_gone_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A while after the last session that had them: nothing grows where backends come and go for ever."""

    monkeypatch.setattr("tuner.dispatch.keeper.FORGET_AFTER", 100.0)

    async def main() -> None:
        found = bench(on("m", "b0"), servers=0)
        found.counts = metrics = Metrics(asyncio.get_running_loop().time)  # type: ignore[assignment]
        found.servers = {f"b{number}:1": FakeServer(f"b{number}:1") for number in range(31)}
        for server in found.servers.values():
            server.limits_of["m"] = ModelLimits(max_batch=16, batches_itself=True)  # which is warned of
        async with found as dispatcher:
            for number in range(31):
                await dispatcher.reload(config(on("m", f"b{number}", *(["b0"] if number == 30 else []))))
                await asyncio.gather(*[reply_to(dispatcher, request()) for _ in range(4)])
                dispatcher.pools[0].servers[0].lost("it was lost")
                await asyncio.sleep(1.0)
            known = dispatcher._keeper
            batching = [one for one in found.warnings if "dynamic batching" in one]
            assert len(known._warned) == len(batching) == 31
            assert len({place[0] for place in known._beliefs._profiles}) == 31
            page = metrics.page(dispatcher.pools).decode()
            assert 'backend="b7:1"' in page
            await asyncio.sleep(100.0)
            assert {place[0] for place in known._beliefs._profiles} == {"b0:1", "b30:1"}
            assert {place[0] for place in known._accelerators._known} == {"b0:1", "b30:1"}
            assert set(known._warned) == {"b0:1", "b30:1"}
            page = metrics.page(dispatcher.pools).decode()
            assert set(re.findall('backend="([^"]*)"', page)) == {"b0:1", "b30:1"}
            assert 'servetune_dispatch_backend_losses_total{backend="b0:1"} 1.0' in page

    run(main())


def test_sessions_that_are_gone_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A while later, although their backends stay: nothing grows where models get new names for ever."""

    monkeypatch.setattr("tuner.dispatch.keeper.FORGET_AFTER", 100.0)

    async def main() -> None:
        found = bench(on("m0", "a"), servers=1)
        found.counts = metrics = Metrics(asyncio.get_running_loop().time)  # type: ignore[assignment]
        async with found as dispatcher:
            for number in range(31):
                await dispatcher.reload(
                    config(on(f"m{number}", "a"), *([on("m0", "a")] if number == 30 else []))
                )
                await asyncio.gather(*[reply_to(dispatcher, request(session=f"m{number}")) for _ in range(4)])
                metrics.page(dispatcher.pools)
            beliefs = dispatcher._keeper._beliefs
            assert len({place[1] for place in beliefs._profiles}) == 31
            assert 'session="m7"' in metrics.page(dispatcher.pools).decode()
            await asyncio.sleep(101.0)
            assert {place[1] for place in beliefs._profiles} == {"m0", "m30"}
            page = metrics.page(dispatcher.pools).decode()
            assert set(re.findall('session="([^"]*)"', page)) == {"m0", "m30"}
            assert 'servetune_dispatch_requests_total{session="m0"} 4.0' in page
            assert set(metrics.totals._sessions) == {"m0", "m30"}
            scaling = metrics._scaling
            assert {*scaling._now, *scaling._begun, *scaling._had} == {"m0", "m30"}
            assert metrics.totals.requests == 31 * 4

    run(main())


@dataclass
class Silent(FakeServer):
    """Says nothing of its models until our connection is closed."""

    closed: asyncio.Event = field(default_factory=asyncio.Event)

    async def metadata(self, model: str, timeout: float) -> Metadata:
        await self.closed.wait()
        raise Lost(f"{self.address}: the connection was closed")

    async def close(self) -> None:
        self.closed.set()


def test_a_question_whose_connection_ends_is_asked_again() -> None:
    """Who asks what a model expects while its servers change hears it from the new ones."""

    async def main() -> None:
        found = bench(on("m", "a"), servers=2)
        found.servers["a:1"] = Silent("a:1")
        found.servers["b:1"].version = "2"
        async with found as dispatcher:
            asked = asyncio.ensure_future(dispatcher.metadata("m"))
            await asyncio.sleep(1 * MS)
            await dispatcher.reload(config(on("m", "b")))
            assert (await asked).versions == ("2",)

    run(main())


SLOW: dict[str, Any] = {"slo_ms": 1000.0, "profile": {"alpha_ms": 1.0, "beta_ms": 80.0}}


def slow(policy: str) -> Bench:
    """A server that takes 80 ms for a batch, and whose policy sends it the first request at once."""
    options = {"deferral": 0.0} if policy == "symphony" else {}
    found = bench(on("m", "a", **SLOW), servers=1, policy=policy, options=options)
    found.servers["a:1"].beta = 80 * MS
    return found


@pytest.mark.parametrize("policy", ["symphony", "eager"])
@pytest.mark.parametrize("change", ["knobs", "reload"])
def test_a_new_scheduler_knows_what_executes(policy: str, change: str) -> None:
    """A busy server gets its next batch when it should be free, whatever has changed meanwhile."""
    found = slow(policy)
    server = found.servers["a:1"]

    async def main() -> None:
        async with found as dispatcher:
            await reply_to(dispatcher, request())
            await asyncio.sleep(5 * MS)
            first = asyncio.ensure_future(reply_to(dispatcher, request()))
            await asyncio.sleep(5 * MS)
            assert server.executing == 1
            if change == "knobs":
                pool = dispatcher.pools[0]
                pool.reconfigure(pool.rules, [replace(pool.session("m"), max_batch=7)])
            else:
                more = config(on("m", "a", **SLOW), on("n", "a"), policy=policy, options=found.config.options)
                await dispatcher.reload(more)
            second = asyncio.ensure_future(reply_to(dispatcher, request()))
            await asyncio.sleep(10 * MS)
            assert server.executing == 1
            assert not first.done()
            await asyncio.gather(first, second)
        assert [items for _, items in server.batches] == [1, 1, 1]

    run(main())
    assert [segment.spec.busy for segment in found.journal.segments][-1]
    assert [segment.replay() for segment in found.journal.segments] == [None] * len(found.journal.segments)


def test_what_executes_is_not_sent_again() -> None:
    """A new scheduler takes no request for waiting that is in a batch already, however many items it has."""
    profile = {"alpha_ms": 1.0, "beta_ms": 800.0}
    found = bench({"slo_ms": 9000.0, "profile": profile}, policy="eager")
    found.servers["b:1"].alive = False

    async def main() -> None:
        async with found as dispatcher:
            for server in found.servers.values():
                server.beta = 0.8
            calls = [
                asyncio.ensure_future(reply_to(dispatcher, request(items=items))) for items in (1, 10, 10)
            ]
            await asyncio.sleep(1.0)  # 16 items are sent, those of the second request and some of the third
            found.servers["b:1"].alive = True  # now there is a new scheduler, for two servers
            await asyncio.gather(*calls)
            await asyncio.sleep(2.0)
        assert sorted(items for server in found.servers.values() for _, items in server.batches) == [
            1,
            10,
            10,
        ]

    run(main())


def test_what_is_left_in_an_old_pool_waits_for_the_new_one() -> None:
    """A session that is gone answers what it has, never beside a batch of the sessions that there are."""
    found = bench(on("m", "a", **SLOW), on("old", "a", **SLOW), servers=1, policy="eager")
    server = found.servers["a:1"]
    server.beta = 80 * MS

    async def main() -> None:
        async with found as dispatcher:
            await asyncio.gather(*[reply_to(dispatcher, request(session=name)) for name in ("m", "old")])
            await asyncio.sleep(5 * MS)
            calls = [
                asyncio.ensure_future(reply_to(dispatcher, request(session=name))) for name in ("m", "old")
            ]
            await asyncio.sleep(5 * MS)
            await dispatcher.reload(config(on("m", "a", **SLOW), policy="eager"))
            calls += [asyncio.ensure_future(reply_to(dispatcher, request())) for _ in range(3)]
            most = 0
            while not all(call.done() for call in calls):
                await asyncio.sleep(5 * MS)
                most = max(most, server.executing)
        assert most == 1

    run(main())

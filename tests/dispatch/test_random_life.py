"""What must hold in any life of a dispatcher, whatever clients, servers and operators do to it.

* Every request has one end: its own answer, or one reason why there is none. No server executes it twice,
  unless one was lost meanwhile.
* Once all is quiet nothing is left of it: no entry, batch, task or connection, and later nothing of servers
  and sessions that are gone.
* A dispatcher for which nothing happens does little.
* Light load is answered, soon after the faults have ended, whatever was learned from them.
* Nothing fails unexpectedly.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from itertools import product
from random import Random
from typing import Any

import pytest

from tests.dispatch.clock import VirtualLoop
from tests.dispatch.fakes import MS
from tests.dispatch.random_life import WIDTHS, Life
from tuner.dispatch.pool.pool import Pool

QUIET_IN = 45.0
"""s until all is quiet: what hangs keeps its server down for 30 s."""
TRIES, GOOD = 150, 5
"""How often light load is tried, and how many tries one after the other must be answered."""
MOST_AT_ONCE = 20_000
"""Turns of the event loop while no time passes."""
MOST_A_SECOND = 400
"""Turns of the event loop in a second in which nothing happens."""
FORGET_AFTER = 60.0


class CountingLoop(VirtualLoop):
    """Counts its turns, and finds out if it does not come to rest."""

    turns = 0
    _since, _at = 0, 0.0

    def _run_once(self) -> None:
        self.turns += 1
        if self.time() > self._at:
            self._since, self._at = self.turns, self.time()
        assert self.turns - self._since < MOST_AT_ONCE, "busy while no time passes"
        super()._run_once()  # type: ignore[misc]


async def turns_in(seconds: float) -> int:
    """Return how many turns the loop makes for others."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, CountingLoop)
    before = loop.turns
    await asyncio.sleep(seconds)
    return loop.turns - before


async def become_quiet(life: Life) -> None:
    """Wait until every request has ended, and everything that was replaced."""
    loop, dispatcher = asyncio.get_running_loop(), life.dispatcher
    ends = loop.time() + QUIET_IN
    while (
        life.calls
        or dispatcher._open
        or dispatcher._retiring
        or not all(pool.up for pool in dispatcher.pools)
    ):
        assert loop.time() < ends, f"{len(life.calls)} calls and {len(dispatcher._retiring)} pools do not end"
        await asyncio.sleep(0.1)


def left(life: Life) -> dict[str, Any]:
    """Return what is left although all is quiet."""
    keeper, pools = life.dispatcher._keeper, life.dispatcher.pools
    servers = [server for pool in pools for server in pool.servers]
    found = {
        "items": sum(queue.items for pool in pools for queue in pool._queues.values()),
        "entries": sum(len(pool._flow.entries) for pool in pools),
        "offers": sum(len(pool._flow.offers) for pool in pools),
        "batches": sum(pool.busy for pool in pools),
        "executing": sum(len(one.batches) for one in keeper._accelerators._known.values()),
        "orphans": sum(len(server.orphans) for server in servers),
        "down": [server.reason for server in servers if not server.up],
        "pools": len(keeper.members) - len(pools),
        "tasks": len(asyncio.all_tasks()) - len(servers) - 1,
    }
    return {name: value for name, value in found.items() if value}


def check_ends(life: Life) -> None:
    """Check that each request has one end, and was executed once for it."""
    for number, visitor in life.visitors.items():
        assert len(visitor.outcomes) == 1, visitor
        executed = sum(server.executed[number] for server in life.servers.values())
        if visitor.outcomes == ["ok"]:
            assert executed >= visitor.items
        if not any(lost >= visitor.came for lost in life.losses):
            assert executed <= visitor.items, visitor
    totals, outcomes = life.metrics.totals, Counter(one.outcomes[0] for one in life.visitors.values())
    counted = totals.requests + totals.failures
    known = len(life.visitors) - sum(
        count for outcome, count in outcomes.items() if outcome.startswith("there is no session")
    )
    assert counted <= known
    if not life.grants:  # frontends need not say what came of their requests
        assert totals.requests == outcomes["ok"]
        assert known - outcomes["withdrawn"] <= counted


async def check_light_load(life: Life, random: Random) -> None:
    """Check that requests of all sizes and deadlines are answered, if they come alone."""
    for pool in life.dispatcher.pools:
        for session in pool.sessions:
            largest = min(pool.largest(session.name), session.queue, 8)
            slowest = max(life.servers[server.address].seconds(largest) for server in pool.servers)
            cases = list(product((1, largest), (None, 1.5 * slowest + 10 * MS, 3.0)))
            for items, timeout in random.sample(cases, len(cases)):
                await check_answered(life, pool, session.name, items, random.choice(WIDTHS), timeout)


async def check_answered(
    life: Life, pool: Pool, session: str, items: int, width: int, timeout: float | None
) -> None:
    """Check that a request of a kind is answered again and again, soon."""
    came: list[str] = []
    while came[-GOOD:] != ["ok"] * GOOD:
        assert len(came) < TRIES, (
            session,
            items,
            timeout,
            pool.rules.policy,
            pool.rules.chosen,
            Counter(came),
        )
        await life.call(session, items, width, timeout)
        came += life.visitors[len(life.visitors) - 1].outcomes
        await asyncio.sleep(0.1)


async def check_the_end(life: Life, random: Random) -> None:
    """Check that nothing is left of a dispatcher that has ended, also if it was about to change."""
    for _ in range(10):
        life.call(random.choice(life.dispatcher.sessions), 1, 2, random.choice([None, 3.0]))
    reload = asyncio.ensure_future(life.reload())
    await asyncio.sleep(random.choice([0.0, 0.01, 0.1, 0.5]))
    await life.dispatcher.close(1.0)
    await reload
    await asyncio.sleep(1.0)
    assert not life.dispatcher._keeper.members
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert await turns_in(100.0) < 20


async def live(life: Life, random: Random, chapters: int) -> None:
    """Let a dispatcher live, and check after each chapter what must hold."""
    asyncio.get_running_loop().set_exception_handler(lambda _, context: pytest.fail(str(context)))
    await life.begin()
    for _ in range(chapters):
        await life.chapter()
        await become_quiet(life)
        await asyncio.sleep(random.choice([3.0, 8.0, 35.0]))
        life.heal()
        assert left(life) == {}
        assert await turns_in(5.0) < 5 * MOST_A_SECOND
        await check_light_load(life, random)
        await asyncio.sleep(2.0)
        assert left(life) == {}
    check_ends(life)
    await asyncio.sleep(FORGET_AFTER + 5.0)
    check_forgotten(life)
    await check_the_end(life, random)


def check_forgotten(life: Life) -> None:
    """Check that nothing is kept of servers and sessions that are gone."""
    keeper, pools = life.dispatcher._keeper, life.dispatcher.pools
    addresses = {server.address for pool in pools for server in pool.servers}
    sessions = {session.name for pool in pools for session in pool.sessions}
    assert {address for address, _, _ in keeper._beliefs._profiles} <= addresses
    assert {name for _, name, _ in keeper._beliefs._profiles} <= sessions
    assert {address for address, _ in keeper._accelerators._known} <= addresses
    assert set(keeper._warned) <= addresses
    page = life.metrics.page(pools).decode()
    known = {
        label
        for line in page.splitlines()
        for label in line.split('"')[1::2]
        if ":1" in label or label in "mno"
    }
    assert known <= addresses | sessions


@pytest.fixture
def in_virtual_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Callable[[int, int], None]:
    """Lives a life of a seed, with so many chapters, on a loop where nothing waits in truth."""

    async def at_once(function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    monkeypatch.setattr(asyncio, "to_thread", at_once)  # threads need true time
    monkeypatch.setattr("tuner.dispatch.keeper.FORGET_AFTER", FORGET_AFTER)

    def lived(seed: int, chapters: int) -> None:
        random = Random(seed)
        with asyncio.Runner(loop_factory=CountingLoop) as runner:
            runner.run(live(Life(random), random, chapters))
        assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []

    return lived


@pytest.mark.parametrize("seed", [2, 5, 8])
def test_a_life(seed: int, in_virtual_time: Callable[[int, int], None]) -> None:
    """Whatever happens, what must hold holds."""
    in_virtual_time(seed, 2)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 110))
def test_many_lives(seed: int, in_virtual_time: Callable[[int, int], None]) -> None:
    """Likewise, in longer lives."""
    in_virtual_time(seed, 3)

"""The watching of a server goes on, whatever fails over it."""

from __future__ import annotations

import asyncio
import re
from errno import ENOSPC
from typing import Any

import pytest

from tests.dispatch.calls import outcome, reply_to
from tests.dispatch.clock import run
from tests.dispatch.fakes import bench, request
from tuner.dispatch.backends.server import FAILURES, PROBE_DOWN, PROBE_UP
from tuner.dispatch.news import MANY, WINDOW
from tuner.dispatch.pool.pool import TUNE_EVERY
from tuner.dispatch.request import Refused, Reply

SOON = FAILURES * PROBE_UP + 4 * PROBE_DOWN


def test_the_operator_hears_why_a_server_goes_and_that_it_comes_back() -> None:
    """Each time; but not of those that are there from the start, which the first line names."""

    async def main() -> None:
        found = bench(servers=2)
        async with found:
            assert found.warnings == []
            for _ in range(2):
                found.servers["a:1"].alive = False
                await asyncio.sleep(SOON)
                found.servers["a:1"].alive = True
                await asyncio.sleep(SOON)
        assert found.warnings == ["backend down: a:1 did not answer 2 probes", "backend up: a:1"] * 2

    run(main())


def test_a_server_that_comes_and_goes_all_the_time_does_not_fill_the_log() -> None:
    """One that answers probes and breaks batches: the first changes are said, then one in ten seconds."""

    async def main() -> None:
        found = bench(servers=1)
        async with found as dispatcher:
            server = found.servers["a:1"]
            server.breaks = True
            end = asyncio.get_running_loop().time() + 6 * WINDOW
            while asyncio.get_running_loop().time() < end:
                await outcome(reply_to(dispatcher, request()))
                await asyncio.sleep(PROBE_DOWN / 4)
            losses = sum(not up for _, up in found.counts.switches)
            assert losses > 100
            said = list(found.warnings)
            assert MANY + 4 <= len(said) <= MANY + 6
            server.breaks = False
            await asyncio.sleep(WINDOW)
            assert dispatcher.pools[0].up
        (last,) = found.warnings[len(said) :]
        assert last.startswith("backend up: a:1 (")
        counted = [int(number) for one in found.warnings for number in re.findall(r"\((\d+) changes", one)]
        assert len(found.warnings) + sum(counted) == len(found.counts.switches) - 1  # the first is not said

    run(main())


@pytest.mark.parametrize("error", [BrokenPipeError(), OSError(ENOSPC, "no space"), ValueError("closed")])
def test_a_printer_that_fails_costs_no_backend(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """Requests go to another server, and the lost one comes back; the log has what was not printed."""

    def say(_: str) -> None:
        raise error

    async def main() -> None:
        found = bench({"slo_ms": 400.0})
        found.say = say
        async with found as dispatcher:
            server = found.servers["a:1"]
            server.alive = False
            answers = await asyncio.gather(*[reply_to(dispatcher, request()) for _ in range(20)])
            assert [type(one) for one in answers] == [Reply] * 20
            server.alive = True
            await asyncio.sleep(SOON)
            assert [one.up for one in dispatcher.pools[0].servers] == [True, True]
        assert found.counts.switches[-2:] == [("a:1", False), ("a:1", True)]

    run(main())
    assert "backend down: a:1: connection refused (this could not be printed" in caplog.text


def failing(times: int, instead: Any) -> Any:
    """Return what fails some times, and then does what it should."""
    left = [times]

    def fails(*args: Any, **more: Any) -> Any:
        if left[0] > 0:
            left[0] -= 1
            raise ZeroDivisionError
        return instead(*args, **more)

    return fails


@pytest.mark.parametrize("what", ["taking in", "taking out", "probing", "warning"])
@pytest.mark.parametrize("times", [1, 3])
def test_a_server_is_watched_for_good(
    what: str, times: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A failure of the dispatcher over a server, such as of its pool, is logged, and goes by."""

    async def main() -> None:
        found = bench(servers=2)
        async with found as dispatcher:
            pool, server = dispatcher.pools[0], found.servers["a:1"]
            watched = pool.servers[0]
            if what == "taking out":
                monkeypatch.setattr(watched, "changed", failing(times, pool.changed))
            server.alive = False
            assert [await outcome(reply_to(dispatcher, request())) for _ in range(10)]
            await asyncio.sleep(SOON)
            broken = {
                "taking in": (watched, "changed"),
                "probing": (server, "ready"),
                "warning": (watched, "_check"),
            }
            if what in broken:
                monkeypatch.setattr(*broken[what], failing(times, getattr(*broken[what])))
            server.alive = True
            await asyncio.sleep(times * PROBE_UP + SOON)
            assert [one.up for one in pool.servers] == [True, True]
            answers = await asyncio.gather(*[reply_to(dispatcher, request()) for _ in range(20)])
            assert [type(one) for one in answers] == [Reply] * 20
            assert pool.waiting("m") == 0
        assert {address for address, _ in found.counts.switches} == {"a:1", "b:1"}

    run(main())
    assert "ZeroDivisionError" in caplog.text


def test_a_probe_that_fails_in_the_dispatcher_takes_a_server_out(caplog: pytest.LogCaptureFixture) -> None:
    """Of a server that cannot be probed nobody knows whether it answers; the log says why."""

    async def main() -> None:
        found = bench(servers=1)
        async with found as dispatcher:
            found.servers["a:1"].ready = failing(10_000, None)  # type: ignore[method-assign]
            await asyncio.sleep(SOON)
            assert found.warnings == ["backend down: the dispatcher failed over a:1; its log says why"]
            refused = await outcome(reply_to(dispatcher, request()))
            assert isinstance(refused, Refused)
            assert "failed over a:1" in refused.reason

    run(main())
    assert "probing a:1 failed" in caplog.text


def test_a_backend_that_cannot_be_probed_is_lost_once() -> None:
    """However often that is tried while the dispatcher fails over it."""

    async def main() -> None:
        found = bench(servers=2)
        async with found:
            found.servers["a:1"].ready = failing(10_000, None)  # type: ignore[method-assign]
            await asyncio.sleep(SOON + 20 * PROBE_DOWN)
        assert [address for address, up in found.counts.switches if not up] == ["a:1"]

    run(main())


def test_a_backend_is_lost_once_where_no_scheduler_can_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool is told again until one begins without it."""

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        found = bench(servers=2)
        async with found as dispatcher:
            pool = dispatcher.pools[0]
            found.servers["b:1"].alive = False
            monkeypatch.setattr(pool, "_begin", failing(10, pool._begin))
            with pytest.raises(ZeroDivisionError):
                pool.servers[1].lost("b:1: connection reset")
            await asyncio.sleep(SOON + 10 * PROBE_DOWN)
            assert pool.up
        assert [address for address, up in found.counts.switches if not up] == ["b:1"]

    run(main())


def test_a_backend_over_which_no_scheduler_can_begin_counts_once_one_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither as up nor as lost at each probe before."""

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        found = bench(servers=2)
        async with found as dispatcher:
            pool = dispatcher.pools[0]
            found.servers["b:1"].alive = False
            pool.servers[1].lost("b:1: connection reset")
            await asyncio.sleep(SOON)
            begun = len(found.counts.switches)
            monkeypatch.setattr(pool, "_begin", failing(5, pool._begin))
            found.servers["b:1"].alive = True
            await asyncio.sleep(SOON + 20 * PROBE_DOWN)
            assert pool.servers[1].up
            assert found.counts.switches[begun:] == [("b:1", True)]

    run(main())


@pytest.mark.parametrize("times", [1, 5])
def test_a_scheduler_that_cannot_begin_is_tried_again(times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits then goes on waiting, and what comes meanwhile is refused with the reason."""
    failures: list[BaseException] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
        found = bench({"slo_ms": 10_000.0}, options={"deferral": 1.0})
        async with found as dispatcher:
            pool = dispatcher.pools[0]
            waiting = [asyncio.ensure_future(outcome(reply_to(dispatcher, request()))) for _ in range(3)]
            await asyncio.sleep(0.01)
            monkeypatch.setattr(pool, "_begin", failing(times, pool._begin))
            with pytest.raises(ZeroDivisionError):
                pool.restart()
            refused = await outcome(reply_to(dispatcher, request()))
            assert isinstance(refused, Refused)
            assert "could not begin to schedule" in refused.reason
            await asyncio.sleep(times * TUNE_EVERY)
            assert pool.up
            assert [type(one) for one in await asyncio.gather(*waiting)] == [Reply] * 3
            assert isinstance(await reply_to(dispatcher, request()), Reply)
            assert pool.waiting("m") == 0

    run(main())
    assert [type(one) for one in failures] == [ZeroDivisionError] * (times - 1)


def test_every_connection_of_a_pool_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    """Also if one cannot be closed; the log says so."""
    closed: list[str] = []

    async def main() -> None:
        found = bench(servers=3)
        async with found:
            for name, server in found.servers.items():

                async def close(name: str = name) -> None:
                    closed.append(name)
                    if name == "a:1":
                        raise ZeroDivisionError

                server.close = close  # type: ignore[method-assign]

    run(main())
    assert closed == ["a:1", "b:1", "c:1"]
    assert "a:1 could not be closed" in caplog.text

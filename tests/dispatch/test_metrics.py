"""The metrics: how many accelerators they ask for, and what they sum up."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from tests.dispatch.calls import reply_to
from tests.dispatch.clock import run
from tests.dispatch.fakes import MS, Bench, bench, request
from tuner.dispatch.grant import Ask
from tuner.dispatch.metrics import Metrics
from tuner.dispatch.request import Refused, Status


async def send(found: Bench, seconds: int) -> None:
    """Send a request each second."""
    for _ in range(seconds):
        with suppress(Refused):
            await reply_to(found.dispatcher, request())
        await asyncio.sleep(1.0)


async def desired(found: Bench, metrics: Metrics, seconds: int) -> str:
    """Send a request each second; return what the page says then."""
    await send(found, seconds)
    page = metrics.page(found.dispatcher.pools).decode()
    (line,) = [line for line in page.splitlines() if line.startswith("servetune_desired")]
    return line


def test_what_has_not_happened_yet_is_0() -> None:
    """Prometheus' `increase` does not see the first of a counter that begins with 1, such as a loss."""

    async def main() -> None:
        async with bench() as dispatcher:
            metrics = Metrics()
            page = metrics.page(dispatcher.pools).decode().splitlines()
            servers = [server.address for server in dispatcher.pools[0].servers]

        for series in ('requests_total{session="m"}', f'backend_losses_total{{backend="{servers[0]}"}}'):
            assert f"servetune_dispatch_{series} 0.0" in page
        for status in ("ok", *(status.value for status in Status)):
            assert f'servetune_dispatch_answers_total{{session="m",status="{status}"}} 0.0' in page
        metrics.session_gone("m")
        for server in servers:
            metrics.gone(server)
        assert not [line for line in metrics.page([]).decode().splitlines() if "_total{" in line]

    run(main())


def test_while_all_backends_are_away_the_number_stays() -> None:
    """Nothing tells how many are needed: an autoscaler neither takes them all away nor asks for more."""

    async def main() -> None:
        found = bench(servers=4)
        found.counts = metrics = Metrics(asyncio.get_running_loop().time)  # type: ignore[assignment]
        async with found:
            assert await desired(found, metrics, 40) == 'servetune_desired_accelerators{pool="m"} 1.0'
            for server in found.servers.values():
                server.alive = False
            assert await desired(found, metrics, 40) == 'servetune_desired_accelerators{pool="m"} 4.0'
            for server in found.servers.values():
                server.alive = True
            await asyncio.sleep(1.0)
            assert await desired(found, metrics, 5) == 'servetune_desired_accelerators{pool="m"} 4.0'
            for alive in (False, True):  # and nobody asks in between
                for server in found.servers.values():
                    server.alive = alive
                await send(found, 10)
            assert await desired(found, metrics, 1) == 'servetune_desired_accelerators{pool="m"} 4.0'
            assert await desired(found, metrics, 20) == 'servetune_desired_accelerators{pool="m"} 1.0'

    run(main())


def test_a_pool_that_has_grown_asks_for_no_more() -> None:
    """What two backends refused says nothing about four, which are enough."""

    async def main() -> None:
        found = bench({"max_batch": 1}, servers=4)
        loop = asyncio.get_running_loop()
        found.counts = metrics = Metrics(loop.time)  # type: ignore[assignment]
        for server in found.servers.values():
            server.alpha, server.beta = 0.0, 30 * MS  # each bears 33 requests/s
        found.servers["c:1"].alive = found.servers["d:1"].alive = False
        async with found as dispatcher:

            async def advised() -> tuple[int, int]:
                """Send 100 requests in a second; return how many instances there are and should be."""
                calls = []
                for _ in range(100):
                    calls.append(asyncio.ensure_future(reply_to(dispatcher, request())))
                    await asyncio.sleep(0.01)
                await asyncio.gather(*calls, return_exceptions=True)
                advice = metrics.scaling(dispatcher.pools)["m"]
                return advice.accelerators, advice.desired

            before = [await advised() for _ in range(16)]
            found.servers["c:1"].alive = found.servers["d:1"].alive = True
            after = [await advised() for _ in range(17)]
        assert before[-1] == (2, 4)
        assert {there for there, _ in after[1:]} == {4}
        assert {desired for _, desired in after} == {4}

    run(main())


@pytest.mark.parametrize("mode", ["proxy", "grants"])
def test_while_no_backend_is_up_sizes_are_not_counted(mode: str) -> None:
    """Nobody knows whether the first dimension is the number of items; plans go by the sizes."""

    async def main() -> None:
        found = bench(mode=mode, servers=1)
        found.servers["a:1"].alive = False
        found.counts = metrics = Metrics(asyncio.get_running_loop().time)  # type: ignore[assignment]
        async with found as dispatcher:
            with pytest.raises(Refused, match="no backend is up"):
                await (
                    reply_to(dispatcher, request(items=8))
                    if mode == "proxy"
                    else dispatcher.grant(Ask("m", 8))
                )
        totals = metrics.totals.of("m")
        assert (totals.arrivals, totals.sizes) == (1, {})

    run(main())


def test_late_answers_are_bad() -> None:
    """Frontends with grants hear them; as many as are late ask for more accelerators."""

    async def main() -> None:
        found = bench(servers=2)
        metrics = Metrics(asyncio.get_running_loop().time)
        async with found:
            for number in range(40):
                metrics.ended("m", None, 0.06, late=number % 2 == 0)
                await asyncio.sleep(1.0)
            assert metrics.scaling(found.dispatcher.pools)["m"].desired == 4

    run(main())


@pytest.mark.parametrize(
    ("status", "desired"),
    [(Status.TOO_LARGE, 1), (Status.INVALID, 1), (Status.INTERNAL, 2), (Status.EXHAUSTED, 4)],
)
def test_what_no_server_can_mend_asks_for_none(status: Status, desired: int) -> None:
    """It is counted all the same; idle time frees nothing while a model fails."""

    async def main() -> None:
        found = bench(servers=2)
        metrics = Metrics(asyncio.get_running_loop().time)
        async with found:
            for number in range(40):
                metrics.ended("m", status if number % 2 == 0 else None, 0.01, late=False)
                await asyncio.sleep(1.0)
            assert metrics.scaling(found.dispatcher.pools)["m"].desired == desired
        assert (metrics.totals.failures, metrics.totals.requests) == (20, 20)

    run(main())


def test_a_broken_model_changes_no_number_of_servers() -> None:
    """Each of its answers is an error: more would not mend it, and fewer may not do once it is mended."""

    async def main() -> None:
        found = bench(servers=2)
        metrics = Metrics(asyncio.get_running_loop().time)
        async with found:
            for _ in range(40):
                metrics.ended("m", Status.INTERNAL, 0.01, late=False)
                await asyncio.sleep(1.0)
            advice = metrics.scaling(found.dispatcher.pools)["m"]
        assert (advice.accelerators, advice.desired) == (2, 2)
        assert "100% of the requests fail" in advice.reason

    run(main())


def test_execution_counts_for_each_request() -> None:
    """As latency does, whatever the items: the difference is the time in which requests wait."""

    async def main() -> None:
        found = bench(servers=1)
        found.counts = metrics = Metrics(asyncio.get_running_loop().time)  # type: ignore[assignment]
        async with found as dispatcher:
            await asyncio.gather(*[reply_to(dispatcher, request(items=8)) for _ in range(2)])
        assert found.servers["a:1"].batches == [("m", 8), ("m", 8)]
        totals = metrics.totals
        assert (totals.requests, totals.inferences) == (2, 16)
        assert totals.compute == pytest.approx(2 * (8 + 4) * MS, abs=0.3 * MS)
        assert totals.latency - totals.compute > 10 * MS

    run(main())

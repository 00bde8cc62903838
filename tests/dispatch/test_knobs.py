"""Knobs of a dispatcher: what a change leaves alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.dispatch.calls import reply_to
from tests.dispatch.clock import run
from tests.dispatch.fakes import bench, request
from tuner.dispatch.backends.connection import ModelLimits
from tuner.dispatch.knobs import POLICIES, current, set_knobs
from tuner.dispatch.request import Reply
from tuner.scheduling.batching.symphony import SymphonyOptions


@pytest.fixture(autouse=True)
def _without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Virtual time waits for no thread."""

    async def at_once(function: Callable[..., None], *arguments: object) -> None:
        function(*arguments)

    monkeypatch.setattr(asyncio, "to_thread", at_once)


@pytest.mark.parametrize("policy", ["symphony", "eager", "timeout", "kairos"])
def test_symphony_has_the_dispatcher_s_own_deferral(policy: str) -> None:
    """Whether the file names it or a knob does."""

    async def main() -> None:
        async with bench(servers=1, policy=policy) as dispatcher:
            assert current(dispatcher.pools)["deferral"] == 0.1
            if policy in POLICIES:
                await set_knobs(dispatcher.pools, {"policy": 0})
                assert dispatcher.pools[0].rules.chosen == SymphonyOptions(deferral=0.1)

    run(main())


def test_a_model_that_does_not_batch_goes_on_so() -> None:
    """By the file; a limit does not change what its tensors are."""

    async def main() -> None:
        async with bench({"max_batch": 0}, servers=1) as dispatcher:
            await set_knobs(dispatcher.pools, current(dispatcher.pools) | {"m.max_batch": 4})
            assert not dispatcher.pools[0].takes_items("m")

    run(main())


def test_limits_that_are_not_named_stay_as_they_are() -> None:
    """Those that are the server's remain so, even if it was not up when another knob was set."""

    async def main() -> None:
        found = bench({"slo_ms": 500.0}, servers=1, policy="eager")
        server = found.servers["a:1"]
        server.alive = False
        async with found as dispatcher:
            await set_knobs(dispatcher.pools, {"deferral": 0.2, "m.queue": 50})
            (session,) = dispatcher.pools[0].sessions
            assert (session.max_batch, session.queue) == (None, 50)
            server.alive = True
            await asyncio.sleep(1.0)
            assert current(dispatcher.pools)["m.max_batch"] == 16
            assert isinstance(await reply_to(dispatcher, request(items=16)), Reply)
            await set_knobs(dispatcher.pools, {"m.max_batch": 4})
            (session,) = dispatcher.pools[0].sessions
            assert (session.max_batch, session.queue) == (4, 50)

    run(main())


@pytest.mark.parametrize("limit", [None, 0])
def test_a_limit_that_no_server_has_said_yet(limit: int | None) -> None:
    """What is shown before a backend has come leaves the backend's own limit when it is written back."""

    async def main() -> None:
        found = bench({"max_batch": limit, "slo_ms": 500.0}, servers=1, policy="eager")
        server = found.servers["a:1"]
        server.alive = False
        async with found as dispatcher:
            shown = current(dispatcher.pools)
            assert shown["m.max_batch"] == (1024 if limit is None else 1)
            await set_knobs(dispatcher.pools, shown)
            server.alive = True
            await asyncio.sleep(1.0)
            assert dispatcher.pools[0].largest("m") == (16 if limit is None else 1)

    run(main())


def test_a_limit_beyond_what_can_be_set_is_shown_as_the_most() -> None:
    """What is shown can be written back."""

    async def main() -> None:
        found = bench(servers=1, policy="eager")
        found.servers["a:1"].limits_of["m"] = ModelLimits(max_batch=4096)
        async with found as dispatcher:
            shown = current(dispatcher.pools)
            assert shown["m.max_batch"] == 1024
            await set_knobs(dispatcher.pools, {"m.max_batch": 8})
            await set_knobs(dispatcher.pools, shown)
            assert current(dispatcher.pools) == shown

    run(main())

"""The event log of the dispatcher: what was commanded live is what a replay commands."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.dispatch.clock import run
from tests.dispatch.fakes import bench
from tests.dispatch.test_dispatcher import poisson
from tuner.dispatch.journal import Journal, explain
from tuner.errors import StorageError


@pytest.mark.parametrize("policy", ["symphony", "eager"])
def test_a_live_log_replays_identically(policy: str, tmp_path: Path) -> None:
    """Also while profiles are learned and a server is lost, and after the log was stored."""
    found = bench({"slo_ms": 100.0}, policy=policy)

    async def main() -> None:
        async with found as dispatcher:
            load = asyncio.ensure_future(poisson(dispatcher, 600, 400))
            await asyncio.sleep(0.6)
            found.servers["a:1"].alive = False
            found.servers["b:1"].alpha *= 2
            await asyncio.sleep(0.5)
            found.servers["a:1"].alive = True
            await load

    run(main())
    found.journal.save(tmp_path / "log.npz")
    journal = Journal.load(tmp_path / "log.npz")

    assert len(journal.segments) >= 4
    assert sum(segment.log.size for segment in journal.segments) > 600
    assert sum(len(segment.changes) for segment in journal.segments) >= 1
    assert [segment.replay() for segment in journal.segments] == [None] * len(journal.segments)


def test_a_request_is_explained() -> None:
    """When it came, with how many it was sent, and where to."""
    found = bench({"slo_ms": 100.0}, servers=1)

    async def main() -> None:
        async with found as dispatcher:
            await poisson(dispatcher, 20, 400)

    run(main())
    said = [line for segment in found.journal.segments for line in explain(segment, 3)]

    assert len(said) == 2
    assert "arrived for m, due in 100.0 ms" in said[0]
    assert "to accelerator 0, to start at" in said[1]


def test_what_is_no_log(tmp_path: Path) -> None:
    """It is refused with its name."""
    path = tmp_path / "log.npz"
    path.write_text("no")

    with pytest.raises(StorageError, match=r"log\.npz: is no event log"):
        Journal.load(path)

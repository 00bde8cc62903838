"""The event log of the dispatcher: what was commanded live is what a replay commands."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from tests.command_line import Run, run
from tests.dispatch.calls import poisson
from tests.dispatch.clock import run as in_virtual_time
from tests.dispatch.fakes import Bench, bench
from tuner.cli.exit_code import ExitCode
from tuner.dispatch.journal import FRAME, Change, Journal, explain
from tuner.errors import StorageError
from tuner.scheduling.cluster import ClusterSpec, SessionSpec, linear_latency
from tuner.scheduling.log import ARRIVE, ENTRY, FINISH, SEND

__all__ = ["run"]


@pytest.mark.parametrize("policy", ["symphony", "eager", "clockwork", "timeout", "ribbon", "drs"])
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

    in_virtual_time(main())
    found.journal.save(tmp_path / "log.npz")
    journal = Journal.load(tmp_path / "log.npz")

    assert len(journal.segments) >= 4
    assert sum(segment.log.size for segment in journal.segments) > 600
    assert sum(len(segment.changes) for segment in journal.segments) >= 1
    assert [segment.replay() for segment in journal.segments] == [None] * len(journal.segments)


def twenty_requests() -> Bench:
    """Return a bench with the journal of a short life."""
    found = bench({"slo_ms": 100.0}, servers=1)

    async def main() -> None:
        async with found as dispatcher:
            await poisson(dispatcher, 20, 400)

    in_virtual_time(main())
    return found


def test_a_request_is_explained() -> None:
    """When it came, with how many it was sent, and where to."""
    found = twenty_requests()
    said = [line for segment in found.journal.segments for line in explain(segment, 12)]

    assert len(said) == 2
    assert "arrived for m, due in 100.0 ms" in said[0]
    assert "to accelerator 0, to start at" in said[1]


@pytest.mark.parametrize(
    ("complete", "said"),
    [(True, "may go on under another number in a later one"), (False, "at the log's limit")],
)
def test_a_number_that_still_waits_where_its_segment_ends_is_said_to(complete: bool, said: str) -> None:
    """The segment ends with a change of servers or knobs, or with the dispatcher; or the log is full."""
    segment = Journal().begin("symphony", None, cluster())
    arrival = np.zeros(1, ENTRY)  # of a request of the first session, as number 0
    arrival["items"] = 1
    segment.log.take(arrival)
    segment.log.complete = complete

    arrived, ended = explain(segment, 0)
    assert arrived == "0.0000 s: arrived for m, due in 50.0 ms"
    assert ended.startswith("0.0000 s: the segment ")
    assert "before this number was sent or dropped" in ended
    assert said in ended
    assert explain(segment, 1) == []


def test_a_log_without_events_is_called_so(run: Run, tmp_path: Path) -> None:
    """As of a dispatcher that was stopped before it listened."""
    Journal().save(path := tmp_path / "log.npz")

    ended = run("dispatch", str(path), "--replay")

    assert (ended.code, ended.out) == (0, f"{path}: no events\n")


@pytest.mark.parametrize("damage", ["text", "empty", "cut", "changed"])
def test_what_is_no_log(tmp_path: Path, damage: str) -> None:
    """It is refused with its name, as is one that was damaged."""
    path = tmp_path / "log.npz"
    Journal().save(path)
    whole = path.read_bytes()
    middle = whole.index(b"header.npy") + 30  # of what is packed
    changed = whole[:middle] + b"\xff" * 8 + whole[middle + 8 :]
    path.write_bytes({"text": b"no", "empty": b"", "cut": whole[:-9], "changed": changed}[damage])

    with pytest.raises(StorageError, match=r"log\.npz: is no event log"):
        Journal.load(path)


@pytest.mark.parametrize(
    ("kind", "field", "value"), [(ARRIVE, "session", 9), (ARRIVE, "items", 9999), (FINISH, "accelerator", 3)]
)
@pytest.mark.parametrize("option", [["--replay"], ["--explain", "3"]])
def test_an_event_that_cannot_have_been(
    run: Run, tmp_path: Path, option: list[str], kind: int, field: str, value: int
) -> None:
    """No policy runs through such a log; the message names file and segment."""
    found, path = twenty_requests(), tmp_path / "log.npz"
    segment = found.journal.segments[-1]
    segment.log.entries[field][segment.log.entries["kind"] == kind] = value
    found.journal.save(path)

    ended = run("dispatch", str(path), *option)

    assert ended.code == 2
    assert f"log.npz: segment {len(found.journal.segments)} cannot be replayed: " in ended.err
    assert "it is damaged, or its policy decides otherwise" in ended.err


@pytest.mark.parametrize("option", [["--replay"], ["--explain", "3"]])
def test_a_sound_log_that_a_policy_fails_on_is_not_called_damaged(
    run: Run, tmp_path: Path, option: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistake in one's own policy is shown with its kind: the words of a KeyError are a name alone."""

    def fails(*_: object, **__: object) -> None:
        raise KeyError("x")

    twenty_requests().journal.save(path := tmp_path / "log.npz")
    monkeypatch.setattr("tuner.dispatch.journal.build_policy", fails)

    ended = run("dispatch", str(path), *option)

    assert ended.code == 2
    assert "segment 1 cannot be replayed: KeyError: 'x'; it is damaged, or its policy" in ended.err


def test_a_batch_that_ends_before_it_was_sent(run: Run, tmp_path: Path) -> None:
    """It is not counted below none: compiled code would go on with that."""
    found, path = twenty_requests(), tmp_path / "log.npz"
    segment = found.journal.segments[-1]
    segment.log.entries["kind"][0] = FINISH
    segment.log.entries["accelerator"][0] = 0
    found.journal.save(path)

    assert "ends a batch of accelerator 0, which has none" in run("dispatch", str(path), "--replay").err


def test_the_command_replays_and_explains(run: Run, tmp_path: Path) -> None:
    """Identical commands end with code 0, others with another one; a number that nobody had is an error."""
    found, path = twenty_requests(), tmp_path / "log.npz"
    found.journal.save(path)
    replayed, explained = run("dispatch", str(path), "--replay"), run("dispatch", str(path), "--explain", "3")
    assert (replayed.code, explained.code) == (0, 0)
    assert replayed.out.endswith("entries): identical\n")
    assert "arrived for m, due in 100.0 ms" in explained.out
    unknown = run("dispatch", str(path), "--explain", "99")
    hint = f"its numbers are 0 to {found.journal.segments[-1].last_number}"
    assert (unknown.code, unknown.err) == (2, f"error: --explain: the log has no request 99; {hint}\n")

    segment = found.journal.segments[-1]
    segment.log.entries["count"][segment.log.entries["kind"] == SEND] += 1
    found.journal.save(path)
    other = run("dispatch", str(path), "--replay")
    assert other.code == ExitCode.DIFFERENT
    assert "differs at entry " in other.out


def cluster() -> ClusterSpec:
    """Return a session on one server."""
    profile = linear_latency(1e-3, 4e-3, 0.05)[None]
    return ClusterSpec(sessions=[SessionSpec(name="m", slo=0.05, latency=profile)], kinds=[0])


def change() -> Change:
    """Return a change of what is believed of the session."""
    spec = cluster()
    return Change(tables=(spec.sessions[0].latency,), delays=spec.delays, options=None)


@pytest.mark.parametrize(("limit", "most"), [(10, 1), (1_000, 1_000 // FRAME)])
def test_a_full_journal_keeps_no_more_segments(limit: int, most: int) -> None:
    """Schedulers come and go for days; tables fill a journal, too. What is not kept grows not, either."""
    journal = Journal(limit=limit)
    journal.begin("symphony", None, cluster()).log.take(np.zeros(limit // 2, ENTRY))

    for _ in range(1_000):
        last = journal.begin("symphony", None, cluster())
        last.note(change())
        last.log.take(np.zeros(1, ENTRY))

    assert 1 <= len(journal.segments) <= most
    assert all(one is not last for one in journal.segments)
    assert (last.log.size, last.log.complete, last.changes) == (0, False, [])


def test_a_full_journal_keeps_no_more_changes() -> None:
    """Nor what comes after one that is missing, for it hangs on it."""
    journal = Journal(limit=1_000)
    segment = journal.begin("symphony", None, cluster())

    for _ in range(1_000):
        segment.note(change())
        segment.log.take(np.zeros(1, ENTRY))

    assert 5 < len(segment.changes) < 1_000 // FRAME
    assert segment.log.size < 1_000 // FRAME
    assert segment.size <= 1_000
    assert not segment.log.complete


@pytest.mark.parametrize("limit", [200, 400, 700, 1_000])
def test_what_a_full_journal_holds_replays_identically(limit: int, tmp_path: Path) -> None:
    """Wherever it became full; what was stored, too."""
    found = bench({"slo_ms": 100.0})
    found.journal = Journal(limit=limit)

    async def main() -> None:
        async with found as dispatcher:
            load = asyncio.ensure_future(poisson(dispatcher, 600, 400))
            for factor in (2.0, 0.5, 3.0):
                await asyncio.sleep(0.4)
                found.servers["b:1"].alpha *= factor
            await load

    in_virtual_time(main())
    found.journal.save(tmp_path / "log.npz")
    stored = Journal.load(tmp_path / "log.npz")
    for journal in (found.journal, stored):
        assert sum(segment.size for segment in journal.segments) <= limit + 100
        assert not all(segment.log.complete for segment in journal.segments)
        assert [segment.replay() for segment in journal.segments] == [None] * len(journal.segments)

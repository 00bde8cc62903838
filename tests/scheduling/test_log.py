"""The event log: what is recorded, that it replays, and what a person sees of it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.cluster.builders import StandIn, jitter, random_scenario
from tuner.cluster.chrome import chrome_trace
from tuner.cluster.draws import lognormal_factor
from tuner.cluster.simulation import Simulation
from tuner.errors import InvalidInput
from tuner.scheduling.log import ARRIVE, FINISH, REFUSE, SEND, EventLog, replay

AMONG_COMMANDS = (96, 200)
"""Entries of scenario 11 that are the only command, or the second, of the event before."""


def record(scenario: StandIn, **kwargs: int) -> tuple[EventLog, Simulation]:
    """A log of a whole scenario, with noise."""
    log = EventLog(**kwargs)
    simulation = Simulation(scenario, log=log, factor=lognormal_factor(0.2))
    simulation.advance(float(scenario.times[-1]) + 1.0)
    simulation.drain()
    return log, simulation


def test_everything_is_in_it() -> None:
    """Each request arrives once and is in one command; each batch ends once; time never goes back."""
    scenario = random_scenario(11, network=jitter)
    log, simulation = record(scenario)
    entries = log.entries

    assert log.complete
    assert (entries["kind"] == ARRIVE).sum() == scenario.times.size
    assert entries[entries["kind"] == ARRIVE]["number"].tolist() == list(range(scenario.times.size))
    assert entries["count"].sum() == scenario.times.size
    assert (entries["kind"] == SEND).sum() == (entries["kind"] == FINISH).sum() > 0
    assert (
        entries[entries["kind"] == REFUSE]["count"].sum() == simulation.totals.sessions["dropped"].sum() > 0
    )
    assert (np.diff(entries["time"]) >= 0).all()


def test_actual_times_are_in_it() -> None:
    """Batches of one accelerator do not overlap, and end when the policy hears that they do."""
    log, _ = record(random_scenario(11, network=jitter))
    sends, ends = (log.entries[log.entries["kind"] == kind] for kind in (SEND, FINISH))

    for accelerator in np.unique(sends["accelerator"]):
        mine = sends[sends["accelerator"] == accelerator]
        assert (mine["started"][1:] >= mine["ended"][:-1]).all()
        assert (mine["started"] >= mine["start"]).all()
        assert mine["ended"].tolist() == ends[ends["accelerator"] == accelerator]["time"].tolist()


def test_logging_changes_nothing() -> None:
    """The counts with a log are those without, however small the buffer."""
    scenario = random_scenario(11, network=jitter)
    _, logged = record(scenario)
    plain = Simulation(scenario, factor=lognormal_factor(0.2))
    plain.advance(float(scenario.times[-1]) + 1.0)
    plain.drain()

    for mine, theirs in zip(logged.totals, plain.totals, strict=True):
        assert mine.tobytes() == theirs.tobytes()


@pytest.mark.parametrize("buffer", [1, 1 << 13])
def test_replay_is_identical(buffer: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new policy that gets the recorded events from Python gives the same commands."""
    monkeypatch.setattr("tuner.cluster.simulation.BUFFER", buffer)
    scenario = random_scenario(11, network=jitter)
    log, _ = record(scenario)

    assert replay(log, scenario.make_policy()) is None


def test_replay_grows_the_rings() -> None:
    """Also when more requests wait than the policy has room for at first."""
    scenario = random_scenario(2, requests=150)
    scenario.slos = [1e3] * len(scenario.slos)
    scenario.times = scenario.times / 1000
    scenario.sessions = np.zeros(150, int)
    log, simulation = record(scenario)

    assert simulation.policy.cluster.waiting.shape[1] > 64
    assert replay(log, scenario.make_policy()) is None


def test_replay_finds_a_difference() -> None:
    """A command that was another one is found and shown."""
    scenario = random_scenario(11)
    log, _ = record(scenario)
    index = int(np.flatnonzero(log.entries["kind"] == SEND)[20])
    given = int(log.entries["count"][index])
    log.entries["count"][index] += 1
    difference = replay(log, scenario.make_policy())

    assert difference is not None
    assert difference.place == index
    assert difference.logged is not None
    assert difference.logged["count"] == given + 1
    assert difference.given is not None
    assert difference.given["count"] == given


def test_replay_finds_missing_and_further_commands() -> None:
    """Also when one side gives a command and the other none."""
    scenario = random_scenario(11)
    log, _ = record(scenario)
    index = int(np.flatnonzero(log.entries["kind"] == SEND)[5])
    shorter, longer = EventLog(), EventLog()
    shorter.take(np.delete(log.entries, index))
    longer.take(np.insert(log.entries, index, log.entries[index]))
    ended = EventLog.of(log.entries[:index])
    further = replay(longer, scenario.make_policy())

    for missing in (replay(shorter, scenario.make_policy()), replay(ended, scenario.make_policy())):
        assert missing is not None
        assert (missing.place, missing.logged) == (index, None)
    assert further is not None
    assert (further.place, further.given) == (index + 1, None)


@pytest.mark.parametrize(
    ("kind", "field", "value", "message"),
    [
        (ARRIVE, "session", 4, "it has an event of session 4, but the policy's cluster none above 3"),
        (ARRIVE, "session", -1, "it has an event of session -1, but "),
        (FINISH, "accelerator", 2, "it has an event of accelerator 2, but the policy's cluster none above 1"),
        (ARRIVE, "items", 9, "it has an event of size 9, but the policy's cluster none above 8"),
    ],
)
def test_a_log_of_another_cluster_is_refused(kind: int, field: str, value: int, message: str) -> None:
    """Compiled code would have written somewhere in memory."""
    scenario = random_scenario(2)
    log, _ = record(scenario)
    place = np.flatnonzero(log.entries["kind"] == kind)[0]
    log.entries[field][place] = value

    with pytest.raises(InvalidInput, match=f"^log: {message}"):
        replay(log, scenario.make_policy())


@pytest.mark.compiled
def test_memory_is_bounded() -> None:
    """A log keeps its first entries, says that it is not complete, and still replays."""
    scenario = random_scenario(11)
    full, _ = record(scenario)
    for limit in (*AMONG_COMMANDS, 100, 101):
        log, _ = record(scenario, limit=limit)

        assert not log.complete
        assert log.entries.tobytes() == full.entries[:limit].tobytes()
        assert replay(log, scenario.make_policy()) is None


def test_a_log_ends_at_its_limit_or_where_it_was_stopped() -> None:
    """It says that it is not complete, and replays, also where it ends among the commands of an event."""
    scenario = random_scenario(11)
    full, _ = record(scenario)
    assert (full.entries["kind"][list(AMONG_COMMANDS)] >= SEND).all()
    for place in (*AMONG_COMMANDS, 100, 101):
        limited, stopped = EventLog(limit=place), EventLog()
        limited.take(full.entries)
        stopped.take(full.entries[:place])
        stopped.stop()
        assert not stopped.complete
        stopped.take(full.entries[place:])

        for log in (limited, stopped):
            assert not log.complete
            assert log.size == place
            assert log.entries.tobytes() == full.entries[:place].tobytes()
            assert replay(log, scenario.make_policy()) is None


def test_littles_law() -> None:
    """Requests in the system, summed over time, are the latencies, summed over requests."""
    scenario = random_scenario(4, requests=200)
    scenario.slos = [1e3] * len(scenario.slos)  # nothing is dropped
    log, simulation = record(scenario)
    entries = log.entries
    response = scenario.delays.response
    arrivals = entries[entries["kind"] == ARRIVE]["time"]
    sends = entries[entries["kind"] == SEND]
    answers = np.repeat(sends["ended"] + response, sends["count"])
    moments = np.concatenate((arrivals, answers))
    order = np.argsort(moments, kind="stable")
    inside = np.cumsum(np.repeat([1, -1], arrivals.size)[order])
    summed = float(inside[:-1] @ np.diff(moments[order]))

    assert inside[-1] == 0
    assert summed == pytest.approx(simulation.totals.sessions["latency"].sum())


def test_chrome_trace() -> None:
    """One slice per batch on its accelerator's row, a counter per session that ends at zero, drops shown."""
    scenario = random_scenario(11)
    log, simulation = record(scenario)
    names = [session.name for session in scenario.cluster_spec().sessions]
    trace = json.loads(json.dumps(chrome_trace(log, names)))
    events = trace["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    first = log.entries[log.entries["kind"] == SEND][0]

    assert len(slices) == simulation.totals.accelerators["batches"].sum()
    assert slices[0]["name"] == f"{names[first['session']]} x{first['count']}"
    assert slices[0]["tid"] == first["accelerator"]
    assert slices[0]["ts"] == pytest.approx(first["started"] * 1e6)
    assert slices[0]["dur"] == pytest.approx((first["ended"] - first["started"]) * 1e6)
    assert sum(event["ph"] == "i" for event in events) == (log.entries["kind"] == REFUSE).sum() > 0
    for name in names:
        counters = [e["args"]["requests"] for e in events if e["name"] == f"waiting {name}"]
        assert min(counters) == counters[-1] == 0

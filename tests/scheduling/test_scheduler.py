"""The live face of policies: commands as objects, growing rings, logs."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
import pytest
from numba.core.compiler_lock import global_compiler_lock

from tests.cluster.builders import random_scenario as cluster_scenario
from tests.scheduling.scenarios import MS, one, random_scenario
from tuner.cluster.simulation import Simulation
from tuner.scheduling.batching.symphony import SymphonyOptions, build
from tuner.scheduling.catalogue import build_policy, options_of
from tuner.scheduling.cluster import FIRST_RING, ClusterSpec, SessionSpec, linear_latency
from tuner.scheduling.log import ARRIVE, ENTRY, FINISH, SEND, EventLog, replay
from tuner.scheduling.scheduler import Command, Dispatch, Drop, Scheduler
from tuner.testing.driver import drive

SPEC = one(1 * MS, 5 * MS, 25 * MS)


def test_commands_name_the_requests() -> None:
    """A request waits, is sent when the scheduler asked to be woken, and nothing is left to do."""
    scheduler = Scheduler(build(SPEC))

    assert scheduler.arrive(0, 0.0, number=41) == []
    assert scheduler.wake_at == pytest.approx(18 * MS)
    (command,) = scheduler.wake(scheduler.wake_at)
    assert isinstance(command, Dispatch)
    assert command[:3] == (0, 0, (41,))
    assert command[3:] == pytest.approx((18 * MS, 24 * MS))
    assert scheduler.finish(0, 24 * MS) == []
    assert scheduler.wake_at == math.inf


def test_requests_are_counted_if_the_driver_has_no_names() -> None:
    """Numbers count from 0 over all sessions."""
    scheduler = Scheduler(build(SPEC, SymphonyOptions(deferral=0)))

    commands = scheduler.arrive(0, 0.0) + scheduler.arrive(0, 1 * MS) + scheduler.finish(0, 6 * MS)

    assert [command.numbers for command in commands] == [(0,), (1,)]


@pytest.mark.parametrize(
    ("name", "options", "learned"),
    [
        ("kairos", {}, "predictor"),
        ("clkwrk", {"learn": True}, "predictor"),
        ("clipper", {"sizing": "aimd"}, "learned"),
        ("clipper", {"sizing": "throughput"}, "learned"),
        ("clockwork", {"estimate": "measured"}, "measured"),
    ],
)
@pytest.mark.parametrize("void", [False, True])
def test_a_batch_that_was_not_executed_teaches_nothing(
    name: str, options: dict[str, Any], learned: str, void: bool
) -> None:
    """Its accelerator is free again, and that is all; a replay learns no more."""
    given, log = options_of(name)(**options), EventLog()
    scheduler = Scheduler(build_policy(name, SPEC, given), log)
    before = str(getattr(scheduler.policy, learned))

    assert [type(one) for one in scheduler.arrive(0, 0.0) + scheduler.wake(0.0)] == [Dispatch]
    scheduler.finish(0, 1 * MS, void=void)
    again = build_policy(name, SPEC, given)
    assert replay(log, again) is None
    for policy in (scheduler.policy, again):
        assert (str(getattr(policy, learned)) == before) == void
    assert [type(one) for one in scheduler.arrive(0, 2 * MS) + scheduler.wake(2 * MS)] == [Dispatch]


def test_refusals_are_commands() -> None:
    """What waits behind an accelerator that does not answer is dropped."""
    scheduler = Scheduler(build(SPEC, SymphonyOptions(deferral=0)))
    scheduler.arrive(0, 0.0)
    scheduler.arrive(0, 1 * MS)

    assert scheduler.wake(30 * MS) == [Drop(0, (1,))]


def test_a_scheduler_begins_while_something_else_is_compiled() -> None:
    """What is compiled already waits for nobody: a dispatcher compiles another policy in a thread."""
    Scheduler(build(SPEC))
    begun = threading.Event()

    def begin() -> None:
        Scheduler(build(SPEC))
        begun.set()

    with global_compiler_lock:
        threading.Thread(target=begin).start()

        assert begun.wait(120)


@pytest.mark.parametrize("now", [math.inf, -math.inf, math.nan])
def test_a_time_that_is_not_finite_is_refused(now: float) -> None:
    """No event happens then, and the scheduler goes on."""
    scheduler = Scheduler(build(SPEC, SymphonyOptions(deferral=0)))

    for event in (scheduler.wake, lambda now: scheduler.arrive(0, now), lambda now: scheduler.finish(0, now)):
        with pytest.raises(ValueError, match="must be finite"):
            event(now)

    assert [command.numbers for command in scheduler.arrive(0, 0.0)] == [(0,)]


@pytest.mark.parametrize("name", ["symphony", "kairos"])
def test_what_there_is_none_of_is_refused(name: str) -> None:
    """No event happens then, whatever memory lies beyond the arrays, and the scheduler goes on."""
    scheduler = Scheduler(build_policy(name, SPEC))
    largest = SPEC.sessions[0].latency.shape[1] - 1

    for session in (-1, 1, 10**9):
        with pytest.raises(ValueError, match=r"a session is one of 0\.\.0"):
            scheduler.arrive(session, 0.0)
    for items in (-1, 0, largest + 1):
        with pytest.raises(ValueError, match=rf"a request has 1\.\.{largest} items"):
            scheduler.arrive(0, 0.0, items=items)
    for early in (-1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="early"):
            scheduler.arrive(0, 0.0, early=early)
    for accelerator in (-1, 1, 10**9):
        with pytest.raises(ValueError, match=r"an accelerator is one of 0\.\.0"):
            scheduler.finish(accelerator, 0.0)
    with pytest.raises(ValueError, match="no batch is outstanding"):
        scheduler.finish(0, 0.0)

    commands = scheduler.arrive(0, 0.0)
    commands += scheduler.wake(scheduler.wake_at)
    assert [command.numbers for command in commands] == [(0,)]
    assert scheduler.finish(0, 1.0) == []


def test_full_rings_grow() -> None:
    """More requests than the rings hold wait; none is lost, and a batch may go round the ring's end."""
    scheduler = Scheduler(build(one(0.01 * MS, 5 * MS, 100 * MS), SymphonyOptions(deferral=0)))
    commands: list[Command] = []
    for number in range(FIRST_RING + 10):
        commands += scheduler.arrive(0, number * 0.01 * MS)
    commands += scheduler.finish(0, 6 * MS)
    for number in range(5 * FIRST_RING):
        commands += scheduler.arrive(0, 6 * MS + number * 0.001 * MS)
    commands += scheduler.finish(0, 12 * MS)

    numbers = [number for command in commands for number in command.numbers]
    assert numbers == list(range(6 * FIRST_RING + 10))
    assert scheduler.policy.cluster.waiting.shape[1] > FIRST_RING


@pytest.mark.parametrize("policy", ["symphony", "eager"])
@pytest.mark.parametrize("seed", range(5))
def test_a_live_log_replays_identically(policy: str, seed: int) -> None:
    """The log of a live run, stored and read again, holds its commands, and replays on a fresh policy."""
    scenario = random_scenario(seed, requests=60)
    log = EventLog()
    commands: list[Command] = []
    scheduler = Scheduler(build_policy(policy, scenario.spec), log)
    trace = drive(build_policy(policy, scenario.spec), scenario.arrivals, scenario.stretch)
    for event in trace.events:
        if event.kind == "arrive":
            session, source, number = event.subject
            commands += scheduler.arrive(session, event.now, number, source)
        elif event.kind == "finish":
            (accelerator,) = event.subject
            commands += scheduler.finish(accelerator, event.now)
        else:
            assert scheduler.wake_at <= event.now
            commands += scheduler.wake(event.now)

    stored = EventLog.of(np.frombuffer(log.entries.tobytes(), ENTRY))
    assert stored.complete
    assert replay(stored, build_policy(policy, scenario.spec)) is None
    rows = stored.entries[stored.entries["kind"] >= SEND]
    assert [(row["kind"] == SEND, row["session"], row["number"], row["count"]) for row in rows] == [
        (isinstance(each, Dispatch), each.session, each.numbers[0], len(each.numbers)) for each in commands
    ]
    assert [command.numbers for command in commands] == [each.numbers for _, each in trace.commands]


def test_a_live_log_is_that_of_the_simulation() -> None:
    """A live scheduler that gets a simulation's events writes the same log, except for the true times."""
    log = EventLog()
    scenario = cluster_scenario(11)
    simulation = Simulation(scenario, log=log)
    simulation.advance(float(scenario.times[-1]) + 1.0)
    simulation.drain()
    live = EventLog()
    scheduler = Scheduler(scenario.make_policy(), live)
    for event in log.entries[log.entries["kind"] < SEND]:
        now = float(event["time"])
        if event["kind"] == ARRIVE:
            numbers = (int(event["number"]), int(event["source"]), int(event["items"]))
            scheduler.arrive(int(event["session"]), now, *numbers)
        elif event["kind"] == FINISH:
            scheduler.finish(int(event["accelerator"]), now)
        else:
            scheduler.wake(now)

    assert live.entries.size == log.entries.size > 0
    for name in set(ENTRY.names or ()) - {"started", "ended"}:
        np.testing.assert_array_equal(live.entries[name], log.entries[name])


def test_an_empty_log_can_be_stored() -> None:
    """No events make an array of none, with the names of the fields."""
    assert EventLog().entries.shape == (0,)
    assert EventLog.of(EventLog().entries).entries.dtype == ENTRY


@pytest.mark.parametrize("name", ["symphony", "eager"])
def test_deadlines_of_their_own(name: str) -> None:
    """Requests whose deadlines are nearer than the SLO are each answered once, and the log replays."""
    sessions = [
        SessionSpec(name=name, slo=40 * MS, latency=np.array([linear_latency(MS, beta * MS, 20 * MS)]))
        for name, beta in (("a", 2), ("b", 5))
    ]
    spec = ClusterSpec(sessions=sessions, kinds=[0, 0])
    log, rng = EventLog(), np.random.default_rng(5)
    scheduler = Scheduler(build_policy(name, spec), log)
    now, left, answered, busy = 0.0, 120, list[int](), list[tuple[float, int]]()
    commands: list[Command] = []
    arrival = 0.0
    while left or busy or scheduler.wake_at < math.inf:
        end = min(busy, default=(math.inf, 0))
        now = max(now, min(arrival if left else math.inf, end[0], scheduler.wake_at))
        if end[0] <= now:
            busy.remove(end)
            commands = scheduler.finish(end[1], now)
        elif left and arrival <= now:
            left -= 1
            early = float(rng.choice([0.0, 2 * MS, 8 * MS]))
            commands = scheduler.arrive(left % 2, now, number=left, early=early)
            arrival = now + float(rng.exponential(1 * MS))
        else:
            commands = scheduler.wake(now)
        for command in commands:
            answered += command.numbers
            if isinstance(command, Dispatch):
                busy.append((max(command.finish, now), command.accelerator))

    assert sorted(answered) == list(range(120))
    assert replay(log, build_policy(name, spec)) is None


@pytest.mark.parametrize(
    ("name", "options"), [("eager", {}), ("clipper", {}), ("clockwork", {"schedule_ahead": 0.0})]
)
def test_a_nearer_deadline_brings_its_session_forward(name: str, options: dict[str, Any]) -> None:
    """It is the earliest of all, though another request of its session, due at 101 ms, came before it."""
    sessions = [
        SessionSpec(name=each, slo=100 * MS, latency=np.array([[0.0, 6 * MS]])) for each in ("a", "b")
    ]
    policy = build_policy(name, ClusterSpec(sessions=sessions, kinds=[0]), options_of(name)(**options))
    scheduler = Scheduler(policy)
    commands = scheduler.arrive(0, 0.0, number=0)
    commands += scheduler.arrive(0, 1 * MS, number=1)
    commands += scheduler.arrive(0, 2 * MS, number=2, early=82 * MS)  # due at 20 ms
    commands += scheduler.arrive(1, 3 * MS, number=3, early=73 * MS)  # due at 30 ms
    for end in (6 * MS, 12 * MS, 18 * MS):
        commands += scheduler.finish(0, end)

    assert [command.numbers for command in commands] == [(0,), (2,), (3,), (1,)]


def test_what_cannot_meet_its_own_deadline_is_refused() -> None:
    """Of two requests that take 6 ms, the one that is due in 5."""
    spec = ClusterSpec(
        sessions=[SessionSpec(name="a", slo=100 * MS, latency=np.array([[0.0, 6 * MS]]))], kinds=[0]
    )
    scheduler = Scheduler(build_policy("clkwrk", spec, options_of("clkwrk")(refuse=True)))

    commands = scheduler.arrive(0, 0.0, early=95 * MS) + scheduler.arrive(0, 0.0, early=90 * MS)

    assert [type(command) for command in commands] == [Drop, Dispatch]


@pytest.mark.parametrize(
    ("alpha", "slo", "largest"),
    [
        (1 * MS, 25 * MS, 20),
        (1 * MS, 4 * MS, 1),
        (0.0, 25 * MS, 1024),
        (1e-323, 25 * MS, 1024),
        (1e-323, MS, 1),
    ],
)
def test_a_profile_has_the_batches_that_can_end_within_the_slo(
    alpha: float, slo: float, largest: int
) -> None:
    """One at least, and 1,024 at most, also where a request takes next to nothing."""
    latency = linear_latency(alpha, 5 * MS, slo)

    assert latency.size == largest + 1
    assert latency[[0, 1, -1]] == pytest.approx([0.0, 5 * MS + alpha, 5 * MS + alpha * largest])

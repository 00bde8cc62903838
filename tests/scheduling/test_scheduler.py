"""The live face of policies: commands as objects, growing rings, recordings."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.scheduling.scenarios import MS, one, random_scenario
from tuner.scheduling.batching.symphony import Options, build
from tuner.scheduling.catalogue import build_policy
from tuner.scheduling.cluster import FIRST_RING
from tuner.scheduling.scheduler import Command, Dispatch, Drop, Recording, Scheduler, replay
from tuner.testing.driver import drive

SPEC = one(1 * MS, 5 * MS, 25 * MS)


def test_commands_name_the_requests() -> None:
    """A request waits, is sent when the scheduler asked to be woken, and nothing is left to do."""
    scheduler = Scheduler(build(SPEC))

    assert scheduler.arrive(0, 0.0, number=41) == []
    assert scheduler.wake_at == pytest.approx(18 * MS)
    (command,) = scheduler.wake(scheduler.wake_at)
    assert command == Dispatch(0, 0, (41,), pytest.approx(18 * MS), pytest.approx(24 * MS))
    assert scheduler.finish(0, 24 * MS) == []
    assert scheduler.wake_at == math.inf


def test_requests_are_counted_if_the_driver_has_no_names() -> None:
    """Numbers count from 0 over all sessions."""
    scheduler = Scheduler(build(SPEC, Options(deferral=0)))

    commands = scheduler.arrive(0, 0.0) + scheduler.arrive(0, 1 * MS) + scheduler.finish(0, 6 * MS)

    assert [command.numbers for command in commands] == [(0,), (1,)]


def test_refusals_are_commands() -> None:
    """What waits behind an accelerator that does not answer is dropped."""
    scheduler = Scheduler(build(SPEC, Options(deferral=0)))
    scheduler.arrive(0, 0.0)
    scheduler.arrive(0, 1 * MS)

    assert scheduler.wake(30 * MS) == [Drop(0, (1,))]


def test_full_rings_grow() -> None:
    """More requests than the rings hold wait; none is lost, and a batch may go round the ring's end."""
    scheduler = Scheduler(build(one(0.01 * MS, 5 * MS, 100 * MS), Options(deferral=0)))
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
def test_a_recording_replays_identically(policy: str, seed: int) -> None:
    """The events of a run, stored and read again, give exactly its commands."""
    scenario = random_scenario(seed, requests=60)
    recording = Recording()
    commands: list[Command] = []
    scheduler = Scheduler(build_policy(policy, scenario.spec), recording)
    trace = drive(build_policy(policy, scenario.spec), scenario.arrivals, scenario.stretch)
    for event in trace.events:
        if event.kind == "arrive":
            session, source, number = event.subject
            commands += scheduler.arrive(session, event.now, number, source)
        elif event.kind == "finish":
            commands += scheduler.finish(*event.subject, event.now)
        else:
            assert scheduler.wake_at <= event.now
            commands += scheduler.wake(event.now)

    stored = Recording.from_array(recording.to_array())
    assert replay(stored, build_policy(policy, scenario.spec)) == commands
    assert [command.numbers for command in commands] == [each.numbers for _, each in trace.commands]


def test_an_empty_recording_can_be_stored() -> None:
    """No events make an array of none, with the names of the fields."""
    array = Recording().to_array()

    assert array.shape == (0,)
    assert array.dtype.names == ("kind", "a", "b", "number", "now", "items")
    assert Recording.from_array(np.array([], array.dtype)).events == []

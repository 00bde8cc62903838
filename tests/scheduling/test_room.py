"""What a policy does when one event has more commands than there is room for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.scheduling.scenarios import MS, at
from tuner.scheduling.catalogue import build_policy, options_of
from tuner.scheduling.cluster import ClusterSpec, Delays, SessionSpec
from tuner.testing.driver import PolicyRun, drive

ROOM = 3
"""Commands for which there is room in an event; a cluster of this size has room for more than seventy."""
SESSIONS = range(6)
BUSY = {0: 10 * MS, 1: 10 * MS, 2: 10.4 * MS}
"""Until when the first accelerators execute at the beginning, if they do, s."""
WHILE_BUSY: list[tuple[str, dict[str, Any]]] = [
    ("symphony", {"deferral": 0.0}),
    ("symphony", {"deferral": 0.0, "drop": "lazy"}),
    ("eager", {}),
    ("clockwork", {"schedule_ahead": 0.0}),
    ("timeout", {"drop_expired": True}),
    ("clipper", {}),
]
WHILE_IDLE: list[tuple[tuple[str, dict[str, Any]], int]] = [
    (("symphony", {}), 3),
    (("eager", {}), 6),
    (("timeout", {"delay": 5 * MS, "drop_expired": True}), 3),
]
KINDS = pytest.mark.parametrize("slow", [1.0, 1.2], ids=["like", "unlike"])


def crowd(accelerators: int, slow: float, busy: dict[int, float]) -> ClusterSpec:
    """Six like sessions, l(b) = b + 8 ms up to 4, 1 ms away; every third accelerator may be a slow one."""
    line = np.array([0.0, 9, 10, 11, 12]) * MS
    latency = np.array([line, slow * line])
    sessions = [SessionSpec(name=str(number), slo=28 * MS, latency=latency) for number in SESSIONS]
    kinds = [int(slow > 1 and place % 3 == 1) for place in range(accelerators)]
    return ClusterSpec(sessions=sessions, kinds=kinds, delays=Delays(control=1 * MS), busy=busy)


def answers(trace: PolicyRun) -> dict[int, tuple[float, int, int, float]]:
    """When and how each request was answered: time, kind of command, accelerator and start."""
    return {
        number: (now, command.kind, command.accelerator, command.start)
        for now, command in trace.commands
        for number in command.numbers
    }


def assert_same_answers(
    policy: tuple[str, dict[str, Any]],
    spec: ClusterSpec,
    arrivals: list[tuple[float, int, int]],
    stretch: float = 1.0,
) -> None:
    """Compare a policy that has room for few commands with one that has room for all."""
    name, options = policy
    roomy, narrow = (build_policy(name, spec, options_of(name)(**options)) for _ in range(2))
    cluster = narrow[0]._replace(commands=narrow[0].commands[:ROOM].copy())

    whole, parts = (drive(each, arrivals, [stretch]) for each in (roomy, narrow._replace(cluster=cluster)))

    assert max(len(event.commands) for event in parts.events) <= ROOM
    assert max(len(event.commands) for event in whole.events) > ROOM
    assert answers(parts) == answers(whole)


@KINDS
@pytest.mark.parametrize("policy", WHILE_BUSY, ids=str)
def test_what_is_refused_for_lack_of_time_is_refused_at_one_instant(
    policy: tuple[str, dict[str, Any]], slow: float
) -> None:
    """Ten requests of each session wait for busy accelerators; then some are sent, and many are too late."""
    arrivals = [request for _ in range(10) for session in SESSIONS for request in at(0.1, session=session)]
    arrivals += at(20, session=SESSIONS[-1])

    assert_same_answers(policy, crowd(3, slow, BUSY), arrivals)


@KINDS
@pytest.mark.parametrize(("policy", "requests"), WHILE_IDLE, ids=str)
def test_what_waits_for_one_instant_goes_at_that_instant(
    policy: tuple[str, dict[str, Any]], requests: int, slow: float
) -> None:
    """Six accelerators are idle when six batches are due; then they are late, and the rest is refused."""
    arrivals = [
        request for _ in range(requests) for session in SESSIONS for request in at(0.1, session=session)
    ]

    assert_same_answers(policy, crowd(6, slow, {}), arrivals, stretch=4.0)

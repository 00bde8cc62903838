"""Every scheduling policy is held to the contract; and policies that are broken on purpose fail it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest

from tuner.scheduling.batching import eager
from tuner.scheduling.catalogue import BATCHING_POLICIES, build_policy, options_of
from tuner.scheduling.cluster import ClusterSpec
from tuner.scheduling.fleet import Fleet
from tuner.scheduling.policy import Functions, register
from tuner.scheduling.vocabulary import DISPATCH, Cluster
from tuner.testing.policy import PolicyContract, overload


class OfCatalogue(PolicyContract):
    """A policy by its name, with options."""

    name = ""
    options: ClassVar[dict[str, Any]] = {}

    def make(self, spec: ClusterSpec) -> Any:
        return build_policy(self.name, spec, options_of(self.name)(**self.options))


class TestEager(OfCatalogue):
    name = "eager"
    promises = True


class TestSymphony(OfCatalogue):
    name = "symphony"
    promises = True


class TestSymphonyOtherwise(TestSymphony):
    options: ClassVar[dict[str, Any]] = {
        "deferral": 0.5,
        "schedulable": "beta_lambda",
        "target_batch": False,
        "cap": 3,
        "drop": "early",
        "order": "latest",
    }


class TestClockwork(OfCatalogue):
    name = "clockwork"
    promises = True
    reorders = True  # what is too late for a large batch stays behind for a smaller one


class TestNexus(OfCatalogue):
    name = "nexus"
    promises = True
    central = False


class TestNexusFrontends(TestNexus):
    options: ClassVar[dict[str, Any]] = {"frontends": 3, "drop": "lazy"}
    sources = 3


class TestNexusMostLeft(TestNexus):
    options: ClassVar[dict[str, Any]] = {"order": "most_left"}
    reorders = True
    both_ends = True


class TestTimeout(OfCatalogue):
    name = "timeout"


class TestTriton(OfCatalogue):
    name = "timeout"
    options: ClassVar[dict[str, Any]] = {
        "delay": 0.004,
        "preferred": (2, 3),
        "instances": 2,
        "max_enqueued": 9,
        "drop_expired": True,
    }


class TestClipper(OfCatalogue):
    name = "clipper"


class TestClipperThroughput(OfCatalogue):
    name = "clipper"
    options: ClassVar[dict[str, Any]] = {"sizing": "throughput", "window": 3}


def test_every_policy_is_here() -> None:
    """No policy of the catalogue is left out."""
    held = {kind.name for kind in OfCatalogue.__subclasses__()}

    assert held == set(BATCHING_POLICIES)


Spoil = Callable[[Cluster], None]


def spoiled(spoil: Spoil) -> PolicyContract:
    """The eager policy, with its state tampered with after each event."""

    class Spoiled(NamedTuple):
        cluster: Cluster
        fleet: Fleet
        oldest: np.ndarray
        of_kind: np.ndarray

    def wrap(function: Callable[..., int]) -> Callable[..., int]:
        def call(policy: Spoiled, *event: Any) -> int:
            status = function(eager.Eager(*policy), *event)
            spoil(policy.cluster)
            return status

        return call

    register(Spoiled, Functions(wrap(eager.arrive), wrap(eager.finish), wrap(eager.wake)))

    class Contract(PolicyContract):
        promises = True

        def make(self, spec: ClusterSpec) -> Any:
            policy = eager.build(spec)
            return Spoiled(*policy)

    return Contract()


def batches(cluster: Cluster) -> list[Any]:
    """The DISPATCH commands of the last event, writable."""
    number = cluster.board[0].commands
    return [cluster.commands[i] for i in range(number) if cluster.commands[i].kind == DISPATCH]


def nothing(cluster: Cluster) -> None:
    """Leave all as it is."""


def lose(cluster: Cluster) -> None:
    """The oldest request of a batch is never answered."""
    for command in batches(cluster):
        if command.count > 1:
            command.first += 1
            command.count -= 1


def repeat(cluster: Cluster) -> None:
    """Every batch is sent twice."""
    for command in batches(cluster):
        cluster.commands[cluster.board[0].commands] = command
        cluster.board[0].commands += 1


def reverse(cluster: Cluster) -> None:
    """The requests of a batch and their places change hands."""
    for command in batches(cluster):
        slots = np.arange(command.first, command.first + command.count) & (cluster.waiting.shape[1] - 1)
        cluster.waiting[command.queue, slots] = cluster.waiting[command.queue, slots[::-1]].copy()


def crowd(cluster: Cluster) -> None:
    """All batches go to the first accelerator, whatever it does."""
    for command in batches(cluster):
        command.accelerator = 0
        command.finish = command.start + cluster.latency[0, command.session, command.count]


def boast(cluster: Cluster) -> None:
    """Batches are said to end earlier than the table says."""
    for command in batches(cluster):
        command.finish -= 1e-3


def hurry(cluster: Cluster) -> None:
    """Batches are to start before their data is there."""
    for command in batches(cluster):
        command.start -= cluster.board[0].d_control
        command.finish -= cluster.board[0].d_control


def dawdle(cluster: Cluster) -> None:
    """Batches are to start so late that they miss their deadlines."""
    for command in batches(cluster):
        command.start += 0.02
        command.finish += 0.02


def overfill(cluster: Cluster) -> None:
    """Batches of 16 hold a seventeenth request."""
    for command in batches(cluster):
        command.count += command.count == 16


def oversleep(cluster: Cluster) -> None:
    """The next wake-up is in the past."""
    cluster.board[0].wake_at = min(cluster.board[0].wake_at, cluster.board[0].now - 1e-6)


def stand_still(cluster: Cluster) -> None:
    """A timer once set is never moved."""
    cluster.board[0].wake_at = min(cluster.board[0].wake_at, 0.1)


def measure_rings(cluster: Cluster) -> None:
    """Decisions depend on how much room the rings have."""
    for command in batches(cluster):
        command.start += 1e-6 * cluster.waiting.shape[1]


def remember() -> Spoil:
    """Decisions depend on what happened outside the state."""
    number = count()

    def spoil(cluster: Cluster) -> None:
        for command in batches(cluster):
            command.start += 1e-6 * next(number)

    return spoil


def examine(contract: PolicyContract, test: str) -> None:
    """Hold a policy to one test of the contract, with the case of a flood."""
    method = getattr(PolicyContract, test)
    if hasattr(method, "hypothesis"):
        method.hypothesis.inner_test(contract, case=overload())
    else:
        method(contract)


BROKEN = [
    (lose, "test_every_request_is_answered_once"),
    (lose, "test_overload_passes"),
    (repeat, "test_every_request_is_answered_once"),
    (repeat, "test_batches_never_overlap"),
    (reverse, "test_oldest_first"),
    (crowd, "test_batches_never_overlap"),
    (boast, "test_batches_never_overlap"),
    (hurry, "test_batches_start_when_the_data_is_there"),
    (hurry, "test_begins_with_what_executes"),
    (dawdle, "test_no_promise_is_broken"),
    (overfill, "test_batches_fit"),
    (oversleep, "test_time_goes_on"),
    (stand_still, "test_time_goes_on"),
    (remember(), "test_replays_identically"),
    (measure_rings, "test_growing_changes_nothing"),
]


@pytest.mark.compiled
@pytest.mark.parametrize(("spoil", "test"), BROKEN)
def test_broken_policies_fail(spoil: Spoil, test: str) -> None:
    """Each kind of fault is found by the test that is there for it, which the healthy policy passes."""
    examine(spoiled(nothing), test)

    with pytest.raises(AssertionError):
        examine(spoiled(spoil), test)

"""Processor times of real, short-lived processes."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
import psutil
import pytest

from tests.waiting import LONGEST, eventually
from tuner.profiler.gpu import Gpus
from tuner.profiler.host import LocalHost, RemoteHost
from tuner.profiler.kernel import ControlGroup
from tuner.profiler.process_tree import ProcessTree

BUSY = "import time\nt = time.process_time()\nwhile time.process_time() - t < {seconds}: pass\n"
PARENT = f"""
import os, subprocess, sys
print("up", flush=True)
for line in sys.stdin:
    busy = {BUSY.format(seconds=0.3)!r} + "input()"
    child = subprocess.Popen([sys.executable, "-c", busy], stdin=subprocess.PIPE)
    print(child.pid, flush=True)
    sys.stdin.readline()
    child.communicate(b"\\n")
    print(sum(os.times()[:4]), flush=True)
"""
NEAR = 0.1
"""Core-seconds that two readings of the same processes may differ by; what a child uses is thrice that."""


class Parent:
    """A process whose child uses 0.3 core-seconds, and ends when a test says so.

    It answers with the child's id, then with the core-seconds of both.
    """

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout.readline() == "up\n"  # what it needs to start is used

    def say(self) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


@pytest.fixture
def parent() -> Iterator[Parent]:
    parent = Parent()
    yield parent
    parent.process.communicate()


def read_until(read: Callable[[], float], enough: float) -> float:
    """Read until the kernel has counted enough."""
    deadline = time.monotonic() + LONGEST
    while (value := read()) < enough and time.monotonic() < deadline:
        time.sleep(0.02)
    return value


def used(process: psutil.Process) -> float:
    """The core-seconds of a process by itself."""
    return sum(process.cpu_times()[:2])


def ended(process: psutil.Process) -> bool:
    """Whether a process runs no more, though nobody may have waited for it."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_children_count_while_they_run_and_after_they_ended(parent: Parent) -> None:
    """A child's time is there at once and stays when its parent has waited for it, once only."""
    tree = ProcessTree(parent.process.pid)
    before = tree.read()
    child = psutil.Process(int(parent.say()))
    during = read_until(tree.read, before + 0.3)
    by_itself = used(child)
    both = float(parent.say())
    after = tree.read()

    assert 0.28 < during - before < by_itself + NEAR
    assert during <= after
    assert after == pytest.approx(both, abs=NEAR)


def test_children_are_searched_for_where_the_kernel_keeps_no_lists(
    parent: Parent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Soon, although a search reads every process of the machine."""
    monkeypatch.setattr("tuner.profiler.process_tree.children", lambda _: None)
    tree = ProcessTree(parent.process.pid)
    before = tree.read()
    child = psutil.Process(int(parent.say()))

    assert read_until(tree.read, before + 0.28) - before < used(child) + NEAR


def test_child_that_nobody_waited_for_is_remembered(parent: Parent) -> None:
    """Total time does not fall when a whole tree ends."""
    tree = ProcessTree(parent.process.pid)
    child = psutil.Process(int(parent.say()))
    during = read_until(tree.read, 0.3)
    parent.process.kill()
    child.kill()
    parent.process.wait()
    eventually(lambda: ended(child))

    assert tree.read() >= during
    assert not tree.running


def test_process_that_never_was_uses_nothing() -> None:
    """A process id without a process is 0 for ever."""
    assert ProcessTree(2**22 + 1).read() == 0


def test_host_divides_the_machine(parent: Parent) -> None:
    """The server's child is the server's although it descends from us; the machine used at least as much."""
    host = LocalHost([parent.process.pid])
    begun = time.process_time()
    first = host.read()
    parent.say()
    read_until(lambda: host.read().server, first.server + 0.3)
    last = host.read()
    ours = time.process_time() - begun
    host.close()

    assert last.server - first.server >= 0.29
    assert last.own - first.own < ours + NEAR
    assert last.total - first.total >= last.server - first.server - 0.05
    assert last.cores == psutil.cpu_count()


def test_cores_are_those_that_the_server_may_use(parent: Parent, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its affinity and its group's quota. What others use is still a share of the machine."""
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("this system has no affinity")
    os.sched_setaffinity(parent.process.pid, {min(os.sched_getaffinity(0))})
    monkeypatch.setattr(ControlGroup, "quota", lambda _: math.inf)
    host = LocalHost([parent.process.pid])

    assert host.cores == 1.0
    monkeypatch.setattr(ControlGroup, "quota", lambda _: 0.5)
    assert host.cores == 0.5
    assert host.read().cores == psutil.cpu_count()
    host.close()


def test_restarted_server_is_followed(parent: Parent) -> None:
    """New process ids are added, known ones not twice."""
    host = LocalHost([])
    unknown = host.read().server
    host.follow([parent.process.pid])
    host.follow([parent.process.pid])
    known = host.read().server
    host.close()

    assert np.isnan(unknown)
    assert known >= 0
    assert len(host._servers) == 1


def test_ended_servers_are_no_longer_searched_for() -> None:
    """Their time stays in the total, which never falls; a process that gets the same id is followed again."""
    host = LocalHost([])
    totals: list[float] = []
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", BUSY.format(seconds=0.1) + "input()"], stdin=subprocess.PIPE
        )
        host.follow([process.pid])
        last = totals[-1] if totals else 0.0
        totals.append(read_until(lambda: host.read().server, last + 0.1))
        process.communicate(b"\n")
        totals.append(host.read().server)
    left = list(host._servers)
    host.follow([process.pid])
    known = [tree.pid for tree in host._servers]
    host.close()

    assert totals == sorted(totals)
    assert totals[-1] >= 0.3
    assert left == []
    assert known == [process.pid]


def test_processes_are_those_that_run(parent: Parent) -> None:
    """A server that has ended is none of them."""
    host = LocalHost([parent.process.pid, 2**22 + 1])

    assert host.read().processes == {parent.process.pid}
    parent.process.kill()
    parent.process.wait()
    assert host.read().processes == frozenset()
    host.close()


def test_remote_host_knows_only_the_time() -> None:
    """Everything about another machine is NaN."""
    reading = RemoteHost(cores=8).read()

    assert np.isnan([reading.server, reading.own, reading.total, reading.gpu.share, reading.gpu.memory]).all()
    assert RemoteHost(cores=8).cores == 8


def test_gpu_is_read_or_unknown() -> None:
    """Without a GPU both readings are NaN; with one they are a share and bytes."""
    gpus = Gpus()
    reading = gpus.read(())
    gpus.close()

    assert np.isnan(gpus.read(()).share)
    assert np.isnan(reading.share) or 0 <= reading.share <= 1
    assert np.isnan(reading.memory) or reading.memory >= 0

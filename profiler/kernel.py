"""Reads the files of the Linux kernel about waiting for a core and about children, which psutil leaves out.

========================  ============================================================  ====================
file                      what is read                                                  where there is none
========================  ============================================================  ====================
/proc/PID/task/T/children   the running processes that a thread started                 kernels without
                                                                                        ``CONFIG_PROC_CHILDREN``
/proc/PID/task/T/schedstat  time a thread ran, and time it was runnable and waited      kernels without
                          for a core, both in ns                                        ``CONFIG_SCHED_INFO``
CGROUP/cpu.pressure,      pressure stall information: ``some ... total=`` is the time   cgroup v1 and kernels
/proc/pressure/cpu        in us in which at least one task waited for a core            before 4.20
CGROUP/cpu.stat           ``throttled_usec``: time in us in which the group's quota     cgroup v1; groups
                          was used up and its tasks could not run                       without a quota
CGROUP/cpu.max            the quota of the group and of each above it, us in a period   cgroup v1
========================  ============================================================  ====================

What is absent, or may not be read, is NaN and never an error.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from tuner.measurement import NOT_KNOWN

__all__ = ["ControlGroup", "RunQueue", "affinity", "children"]

PROC = Path("/proc")
Thread = tuple[int, str]
"""Ids of a process and of one of its threads."""


class RunQueue:
    """Adds up how long the threads of a server ran, and how long they waited for a core; sums never fall.

    Life: :meth:`read` at both ends of a window. Threads come and go: of a thread that has ended, the sums
    last read are kept, and what it did after that is lost.

    Args:
        proc: Where the kernel shows its processes.
    """

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._alive: dict[Thread, tuple[int, int]] = {}
        self._ended = (0, 0)

    def read(self, processes: Iterable[int]) -> tuple[float, float]:
        """Return the time that threads of the processes ran and waited, s; NaN if no thread can be read."""
        now = dict(self._threads(processes))
        for thread, (ran, waited) in self._alive.items():
            if thread not in now or now[thread] < (ran, waited):  # ended; its id may belong to another one
                self._ended = self._ended[0] + ran, self._ended[1] + waited
        self._alive = now
        if not now:
            return NOT_KNOWN, NOT_KNOWN
        ran, waited = (sum(pair) for pair in zip(self._ended, *now.values(), strict=True))
        return ran / 1e9, waited / 1e9

    def _threads(self, processes: Iterable[int]) -> Iterator[tuple[Thread, tuple[int, int]]]:
        """Yield each thread with the ns it ran and waited."""
        for process in processes:
            tasks = self._proc / str(process) / "task"
            for name in _names(tasks):
                ran, waited, *_ = [*_text(f"{tasks}/{name}/schedstat").split(), "", ""]
                if ran.isdigit() and waited.isdigit():
                    yield (process, name), (int(ran), int(waited))


class ControlGroup:
    """The control group (cgroup v2) of a process.

    Args:
        process: The process. If it is None, gone, or in no such group, pressure is the machine's.
        proc: Where the kernel shows its processes.
        mount: Where cgroup v2 is mounted; None: wherever the machine's table of mounts says.

    Attributes:
        folder: Where the group's files are; None if it is in no such group.
    """

    def __init__(self, process: int | None, *, proc: Path = PROC, mount: Path | None = None) -> None:
        mount = mount or _mount()
        path = _group(_text(proc / str(process) / "cgroup")) if process is not None else None
        # In a container the root that is seen is the container's own group.
        self.folder = folder = mount / path if mount is not None and path is not None else None
        self._throttling = folder / "cpu.stat" if folder is not None else None
        own = folder / "cpu.pressure" if folder is not None else None
        self._pressure = own if own is not None and _text(own) else proc / "pressure" / "cpu"

    def quota(self) -> float:
        """Return the cores that the quotas of the group and of those above it allow; infinite without one."""
        least = math.inf
        for folder in () if self.folder is None else (self.folder, *self.folder.parents):
            allowed, period, *_ = [*_text(folder / "cpu.max").split(), "", ""]
            if allowed.isdigit() and period.isdigit():
                least = min(least, int(allowed) / int(period))
        return least

    def pressure(self) -> float:
        """Return the time in which at least one task of the group waited for a core, s."""
        for line in _text(self._pressure).splitlines():
            kind, *fields = line.split()
            if kind == "some":
                return _microseconds(dict(_pairs(fields, "=")), "total")
        return NOT_KNOWN

    def throttled(self) -> float:
        """Return the time in which the group's quota was used up, s."""
        if self._throttling is None:
            return NOT_KNOWN
        return _microseconds(dict(_pairs(_text(self._throttling).splitlines(), " ")), "throttled_usec")


def children(process: int, proc: Path = PROC) -> list[int] | None:
    """Return the running processes that a process started, or None where the kernel keeps no such lists.

    It reads a file for each thread of the process, not for each process of the machine.
    """
    tasks = proc / str(process) / "task"
    found = [_text(f"{tasks}/{name}/children").split() for name in _names(tasks)]
    if not any(found) and tasks.exists() and not (tasks / str(process) / "children").exists():
        return None
    return [int(pid) for pids in found for pid in pids]


def affinity(process: int) -> set[int]:
    """Return the cores on which threads of a process may run; empty where nothing says."""
    cores: set[int] = set()
    for thread in _names(PROC / str(process) / "task"):  # a server may bind each of its threads to a core
        with suppress(OSError):  # it has just ended
            cores |= os.sched_getaffinity(int(thread))
    return cores


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _text(file: Path | str) -> str:
    try:
        with open(file, "rb", buffering=0) as opened:  # these are small, and there are many threads
            return opened.read().decode(errors="replace")
    except OSError:
        return ""


def _pairs(texts: Iterable[str], sign: str) -> Iterator[tuple[str, str]]:
    for text in texts:
        name, _, value = text.partition(sign)
        yield name, value


def _microseconds(values: dict[str, str], name: str) -> float:
    text = values.get(name, "")
    return int(text) / 1e6 if text.isdigit() else NOT_KNOWN


def _group(text: str) -> str | None:
    """Return the path of a process's group of version 2 below its mount; None if it is in none."""
    lines = (line.split(":", 2) for line in text.splitlines())
    return next((line[2].strip("/") for line in lines if line[:2] == ["0", ""] and len(line) == 3), None)


def _mount() -> Path | None:
    """Return where cgroup v2 is mounted; None if it is not."""
    try:
        mounts = psutil.disk_partitions(all=True)
    except (OSError, RuntimeError):
        return None
    return next((Path(mount.mountpoint) for mount in mounts if mount.fstype == "cgroup2"), None)

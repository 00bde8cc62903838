"""Processor time of a process and all its descendants, also of those that have ended."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress

import psutil

from tuner.profiler.kernel import children

__all__ = ["ProcessTree"]

SHARE = 100.0
"""Where the kernel keeps no lists of children, a search for them reads every process of the machine. It may
take one part in this many of the time; what is found late has used its time in the wrong window."""


class ProcessTree:
    """Adds up the core-seconds of a tree of processes; the total never falls.

    The kernel adds a child's time to its parent's when the parent waits for it. The time of a vanished child
    is therefore only remembered if its parent did not get it: if the parent is gone, too, or never waited.

    Args:
        root: Process id of the root. If it ends, the total stays; a process that later gets the same id is
            not mistaken for it.

    Attributes:
        pid: Process id of the root.
        without: Process ids of subtrees that do not count, such as an embedded server, which is our
            child. The time that the kernel added for ended children is then left out, because it may be
            theirs.
    """

    def __init__(self, root: int) -> None:
        self.pid = root
        self.without: set[int] = set()
        try:
            self._root: psutil.Process | None = psutil.Process(root)
        except psutil.Error:
            self._root = None
        self._known: dict[psutil.Process, tuple[float, float]] = {}  # own and waited-for core-seconds
        self._parents: dict[psutil.Process, psutil.Process] = {}
        self._carried = 0.0
        self._total = 0.0
        self._look_at = 0.0

    @property
    def running(self) -> bool:
        """Whether the root still runs."""
        return self._root is not None and self._root.is_running()

    @property
    def processes(self) -> list[int]:
        """Ids of the processes that the last reading knew."""
        return [process.pid for process in self._known]

    def read(self) -> float:
        """Return the core-seconds used by the tree since its processes began."""
        self._look()
        times: dict[psutil.Process, tuple[float, float]] = {}
        gone = []
        for process, last in self._known.items():
            now = self._times(process)
            if now is None:
                gone.append((process, last))
            else:
                times[process] = now
        self._remember(gone, times)
        self._known = times
        spent = sum(own + waited for own, waited in times.values())
        self._total = max(self._total, self._carried + spent)
        return self._total

    def _look(self) -> None:
        """Find new descendants: a server that starts a process for each reload would else seem to idle."""
        by_pid: dict[int, psutil.Process] = {}
        foreign = set(self.without)
        for process, parent in self._descendants():
            by_pid[process.pid] = process
            if process.pid in foreign or parent in foreign:
                foreign.add(process.pid)
            elif process not in self._known:
                self._known[process] = (0.0, 0.0)
                self._parents[process] = by_pid.get(parent, process)

    def _descendants(self) -> Iterator[tuple[psutil.Process, int]]:
        """Yield the root, then its descendants, each after its parent and with the id of it."""
        if self._root is None or not self._root.is_running():
            return
        yield self._root, 0
        if children(self._root.pid) is None:
            yield from self._searched(self._root)
            return
        found = [self._root.pid]
        for parent in found:  # grows
            for pid in children(parent) or []:
                with suppress(psutil.Error):
                    yield psutil.Process(pid), parent
                    found.append(pid)

    def _searched(self, root: psutil.Process) -> Iterator[tuple[psutil.Process, int]]:
        """Search all processes, unless the last search is too recent for what it cost."""
        if time.monotonic() < self._look_at:
            return
        begin = time.thread_time()  # a search that was held up cost no more
        with suppress(psutil.Error):
            for process in root.children(recursive=True):  # parents come before their children
                yield process, _parent_pid(process)
        self._look_at = time.monotonic() + SHARE * (time.thread_time() - begin)

    def _times(self, process: psutil.Process) -> tuple[float, float] | None:
        """Return own and waited-for core-seconds, or None if the process is gone."""
        try:
            times = process.cpu_times()
        except psutil.Error:
            return None
        waited = 0.0 if self.without else times.children_user + times.children_system
        return times.user + times.system, waited

    def _remember(
        self,
        gone: list[tuple[psutil.Process, tuple[float, float]]],
        times: dict[psutil.Process, tuple[float, float]],
    ) -> None:
        """Keep the time of vanished processes, as far as their parents did not get it."""
        missing: dict[psutil.Process, float] = defaultdict(float)
        for process, last in gone:
            missing[self._parents.pop(process, process)] += sum(last)
        for parent, seconds in missing.items():
            got = times[parent][1] - self._known[parent][1] if parent in times else 0.0
            self._carried += max(seconds - got, 0.0)


def _parent_pid(process: psutil.Process) -> int:
    try:
        return process.ppid()
    except psutil.Error:
        return 0

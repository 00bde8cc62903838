"""The server's machine: processor time of the server, of ourselves and of others, waiting, and the GPUs."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable
from pathlib import Path

import psutil

from tuner.measurement import NOT_KNOWN
from tuner.profiler.gpu import Gpus
from tuner.profiler.kernel import ControlGroup, RunQueue, affinity
from tuner.profiler.process_tree import ProcessTree
from tuner.profiler.source import HostReading

__all__ = ["LocalHost", "RemoteHost"]

IDLE = ("idle", "iowait", "guest", "guest_nice")
"""Fields of the machine's processor times that do not count as used; guests are part of ``user`` already."""


class LocalHost:
    """This machine, with the server on it.

    Time that neither the server nor we used is foreign: that of other processes, of the kernel itself, and
    time that a hypervisor withheld (steal). All of it slows the server down. We are this process with its
    descendants, such as a load generator, but not a server that is among them.

    Args:
        processes: Process ids of the server; their descendants belong to it. Empty: the server's use is NaN.
        on_gpu: Whether the server's model runs on GPUs; None if nobody says.
    """

    def __init__(self, processes: Iterable[int], *, on_gpu: bool | None = None) -> None:
        self._on_gpu = on_gpu
        self._servers: list[ProcessTree] = []
        self._ended = NOT_KNOWN  # core-seconds of the servers that have ended; NaN if there never was one
        self._own = ProcessTree(os.getpid())
        self._gpus = Gpus()
        self._run_queue = RunQueue()
        self._group = ControlGroup(None)
        self.follow(processes)

    @property
    def cores(self) -> float:
        """CPU cores of this machine that the server may use, by its affinity and its group's quota."""
        return min(_cores(), _allowed(tree.pid for tree in self._servers if tree.running))

    def follow(self, processes: Iterable[int]) -> None:
        """Count these processes as the server's, too: a restarted server has new process ids."""
        known = {tree.pid for tree in self._servers}
        new = set(processes) - known
        self._servers += [ProcessTree(pid) for pid in sorted(new)]
        if new:
            self._ended = 0.0 if math.isnan(self._ended) else self._ended
            self._group = ControlGroup(min(new))
        self._own.without |= new

    def read(self) -> HostReading:
        """Read processor times, waiting and GPU state.

        Costs about a millisecond, and another for every 40 threads of the server: 5 ms with 200 of them.
        """
        server = self._ended + sum(tree.read() for tree in self._servers)
        self._drop_ended()
        processes = {process for tree in self._servers for process in tree.processes}
        ran, waited = self._run_queue.read(processes)
        return HostReading(
            time=time.monotonic(),
            server=server,
            own=self._own.read(),
            total=_machine(),
            cores=_cores(),
            steal=float(getattr(psutil.cpu_times(), "steal", NOT_KNOWN)),
            ran=ran,
            waited=waited,
            pressure=self._group.pressure(),
            throttled=self._group.throttled(),
            processes=frozenset(tree.pid for tree in self._servers if tree.running),
            gpu=self._gpus.read(processes, elsewhere=self._on_gpu is False),
        )

    def _drop_ended(self) -> None:
        """Keep only the total of servers that have ended: to read each would search all processes for it."""
        for tree in [tree for tree in self._servers if not tree.processes and not tree.running]:
            self._ended += tree.read()
            self._servers.remove(tree)

    def close(self) -> None:
        """Let go of the GPU driver."""
        self._gpus.close()


class RemoteHost:
    """Another machine, whose processes cannot be seen: all readings are NaN.

    Args:
        cores: CPU cores it is assumed to have.
    """

    def __init__(self, cores: float = 1.0) -> None:
        self._cores = cores

    @property
    def cores(self) -> float:
        """CPU cores it is assumed to have."""
        return self._cores

    def read(self) -> HostReading:
        """Return a reading in which only the time is known."""
        return HostReading(time=time.monotonic())

    def close(self) -> None:
        """Nothing is held open."""


def _cores() -> float:
    """Return the CPU cores of this machine."""
    return float(psutil.cpu_count() or 1)


def _allowed(processes: Iterable[int]) -> float:
    """Return how many cores processes may use together; infinite where nothing says."""
    cores: set[int] = set()
    quotas: dict[Path | None, float] = {}  # replicas may be in groups of their own
    for process in processes:
        cores |= affinity(process)
        group = ControlGroup(process)
        quotas[group.folder] = group.quota()
    return min(len(cores) or math.inf, sum(quotas.values()) or math.inf)


def _machine() -> float:
    """Return the core-seconds used by all processes since the machine started."""
    return float(sum(value for name, value in psutil.cpu_times()._asdict().items() if name not in IDLE))

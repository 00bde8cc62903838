"""Use of the machine's NVIDIA GPUs, by NVML. A machine without a GPU or a driver is no error.

The driver samples the use several times a second and keeps its last samples; each reading takes those since
the reading before, so that a window shows its own mean rather than its last moment.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tuner.measurement import NOT_KNOWN

__all__ = ["GpuReading", "Gpus"]


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuReading:
    """What was read of the GPUs that the server is on; of all, where the driver does not show on which."""

    share: float = NOT_KNOWN
    """Mean share of their time in use since the reading before, without what foreign processes used where the
    driver tells processes apart, 0..1."""
    foreign: float = NOT_KNOWN
    """Mean share of their time that processes other than the server used since the reading before, 0..1."""
    memory: float = NOT_KNOWN
    """Bytes in use."""
    energy: float = NOT_KNOWN
    """Energy used since the driver was loaded, J."""
    devices: tuple[int, ...] = ()
    """Which GPUs they are, by the driver's order of those that were opened."""


class Gpus:
    """Reads the GPUs that the driver shows; without any, every reading is NaN."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._devices: list[Any] = []
        self._sampled: dict[int, int] = {}  # time stamp of the last sample of each device, us
        self._seen: dict[int, int] = {}  # the same of the samples by process
        try:
            import pynvml

            pynvml.nvmlInit()
            count = pynvml.nvmlDeviceGetCount()
        except Exception:  # no module, no driver library, no permission: there is nothing to read
            return
        self._nvml = pynvml
        for number in range(count):
            with suppress(pynvml.NVMLError):  # one that we may not open, or that has failed, is none of ours
                self._devices.append(pynvml.nvmlDeviceGetHandleByIndex(number))

    def __len__(self) -> int:
        return len(self._devices)

    def names(self) -> list[str]:
        """Return what the driver calls each GPU."""
        return [str(self._nvml.nvmlDeviceGetName(device)) for device in self._devices]

    def read(self, server: Collection[int], *, elsewhere: bool = False) -> GpuReading:
        """Read the GPUs that a server is on.

        Args:
            server: Its process ids. In a container they may not be those that the driver shows; then all GPUs
                are read, and what others use of them is not known.
            elsewhere: Whether its model runs on the processor: only GPUs on which the driver shows the server
                are its own then.
        """
        if not self._devices:
            return GpuReading()
        running = [self._running(number) for number in range(len(self._devices))]
        used = [number for number, pids in enumerate(running) if not pids.isdisjoint(server)]
        if elsewhere and not used:
            return GpuReading()
        numbers = used or list(range(len(self._devices)))
        share = _mean(self._share(number) for number in numbers)
        foreign = _mean(self._foreign(number, server) for number in used)
        return GpuReading(
            share=share if math.isnan(foreign) else max(share - foreign, 0.0),
            foreign=foreign,
            memory=self._sum("nvmlDeviceGetMemoryInfo", numbers, lambda info: float(info.used)),
            energy=self._sum("nvmlDeviceGetTotalEnergyConsumption", numbers, lambda mj: mj / 1e3),
            devices=tuple(numbers),
        )

    def close(self) -> None:
        """Let go of the driver; readings are NaN from then on."""
        if self._nvml is not None:
            self._nvml.nvmlShutdown()
        self._nvml, self._devices = None, []

    def _running(self, number: int) -> set[int]:
        """The processes on a device, as far as the driver shows them."""
        try:
            found = self._nvml.nvmlDeviceGetComputeRunningProcesses(self._devices[number])
        except self._nvml.NVMLError:
            return set()
        return {process.pid for process in found}

    def _share(self, number: int) -> float:
        """Mean use of a device since the last call; NaN in MIG mode, in which the driver knows none."""
        device, since = self._devices[number], self._sampled.get(number, 0)
        if self._is_split(number):
            return NOT_KNOWN
        try:
            kind = self._nvml.NVML_GPU_UTILIZATION_SAMPLES
            _, found = self._nvml.nvmlDeviceGetSamples(device, kind, since)
            new = [sample for sample in found if sample.timeStamp > since]
        except self._nvml.NVMLError:  # no new sample, or a device that keeps none
            new = []
        if not new:
            return self._share_now(number)
        self._sampled[number] = max(sample.timeStamp for sample in new)
        return min(_mean(float(sample.sampleValue.uiVal) for sample in new) / 100, 1.0)

    def _share_now(self, number: int) -> float:
        """The driver itself averages over its last 0.2 to 1 s."""
        try:
            return float(self._nvml.nvmlDeviceGetUtilizationRates(self._devices[number]).gpu) / 100
        except self._nvml.NVMLError:
            return NOT_KNOWN

    def _is_split(self, number: int) -> bool:
        """Whether a device is in MIG mode: split into several that are not seen here one by one."""
        try:
            current, _ = self._nvml.nvmlDeviceGetMigMode(self._devices[number])
        except self._nvml.NVMLError:  # a device that cannot be split
            return False
        return bool(current)

    def _foreign(self, number: int, server: Collection[int]) -> float:
        """Share of a device that others used since the last call; NaN if the driver does not say."""
        if self._is_split(number):
            return NOT_KNOWN
        since = self._seen.get(number, 0)
        try:
            samples = self._nvml.nvmlDeviceGetProcessUtilization(self._devices[number], since)
        except self._nvml.NVMLError_NotFound:  # nobody used it since then
            return 0.0
        except self._nvml.NVMLError:  # no permission
            return NOT_KNOWN
        self._seen[number] = max((sample.timeStamp for sample in samples), default=since)
        each: dict[int, list[float]] = defaultdict(list)
        for sample in samples:
            each[sample.pid].append(float(sample.smUtil))
        return min(sum(_mean(used) for pid, used in each.items() if pid not in server) / 100, 1.0)

    def _sum(self, question: str, numbers: Iterable[int], answer: Any) -> float:
        """Ask about several devices and add up the answers; NaN if one gives none."""
        try:
            known = [answer(getattr(self._nvml, question)(self._devices[number])) for number in numbers]
        except self._nvml.NVMLError:
            return NOT_KNOWN
        return float(sum(known))


def _mean(values: Iterable[float]) -> float:
    """The mean; NaN of none, and if one is not known."""
    known = list(values)
    return sum(known) / len(known) if known else NOT_KNOWN

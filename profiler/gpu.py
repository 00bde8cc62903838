"""Use of the machine's NVIDIA GPUs, by NVML. A machine without a GPU or a driver is no error."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tuner.measurement import NOT_KNOWN

__all__ = ["Gpus"]


class Gpus:
    """Reads all GPUs that the driver shows; without any, every reading is NaN."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._devices: list[Any] = []
        self._seen: dict[int, int] = {}  # time stamp of the last sample of each device, us
        try:
            import pynvml

            pynvml.nvmlInit()
        except (
            Exception
        ):  # ImportError, no driver library, no permission: all mean that there is nothing to read
            return
        self._nvml = pynvml
        self._devices = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]

    def __len__(self) -> int:
        return len(self._devices)

    def read(self) -> tuple[float, float]:
        """Return the mean share of time in use, 0..1, and the bytes in use on all GPUs together."""
        if not self._devices:
            return NOT_KNOWN, NOT_KNOWN
        return self._share(), self._memory()

    def foreign(self, server: Collection[int]) -> float:
        """Return the mean share of time that processes other than the server used since the last call, 0..1.

        NaN if a server that is on a GPU is not to be found among them: in a container its process ids may not
        be those that the driver shows.
        """
        shares = [self._foreign_share(number, server) for number in range(len(self._devices))]
        return sum(shares) / len(shares) if shares else NOT_KNOWN

    def close(self) -> None:
        """Let go of the driver; readings are NaN from then on."""
        if self._nvml is not None:
            self._nvml.nvmlShutdown()
        self._nvml, self._devices = None, []

    def _share(self) -> float:
        """The driver itself averages over its last 0.2 to 1 s."""
        try:
            rates = [self._nvml.nvmlDeviceGetUtilizationRates(device).gpu for device in self._devices]
        except self._nvml.NVMLError:  # a device in MIG mode has no utilisation
            return NOT_KNOWN
        return float(sum(rates)) / len(rates) / 100

    def _foreign_share(self, number: int, server: Collection[int]) -> float:
        device = self._devices[number]
        try:
            running = {process.pid for process in self._nvml.nvmlDeviceGetComputeRunningProcesses(device)}
            if running.isdisjoint(server):
                return NOT_KNOWN
            samples = self._nvml.nvmlDeviceGetProcessUtilization(device, self._seen.get(number, 0))
        except self._nvml.NVMLError_NotFound:  # nobody used it since then
            return 0.0
        except self._nvml.NVMLError:  # no permission, or a device in MIG mode
            return NOT_KNOWN
        self._seen[number] = max(sample.timeStamp for sample in samples)
        return min(sum(float(sample.smUtil) for sample in samples if sample.pid not in server) / 100, 1.0)

    def _memory(self) -> float:
        try:
            return float(sum(self._nvml.nvmlDeviceGetMemoryInfo(device).used for device in self._devices))
        except self._nvml.NVMLError:
            return NOT_KNOWN

"""Other processes' share of a GPU, read from a driver with prepared answers."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from tuner.profiler.gpu import Gpus


class NVMLError(Exception):
    """The driver's failure."""


class NotFound(NVMLError):
    """No process has used the device."""


class Driver:
    """One GPU, the processes on it, and a sample of each process's use in percent."""

    NVMLError = NVMLError
    NVMLError_NotFound = NotFound

    def __init__(self, running: list[int], used: dict[int, int], failure: Exception | None = None) -> None:
        self.running = running
        self.used = used
        self.failure = failure
        self.asked_since: list[int] = []

    def nvmlDeviceGetComputeRunningProcesses(self, _: object) -> list[Any]:  # noqa: N802
        return [SimpleNamespace(pid=pid) for pid in self.running]

    def nvmlDeviceGetProcessUtilization(self, _: object, since: int) -> list[Any]:  # noqa: N802
        self.asked_since.append(since)
        if self.failure is not None:
            raise self.failure
        return [
            SimpleNamespace(pid=pid, smUtil=share, timeStamp=1000 + pid) for pid, share in self.used.items()
        ]


def gpus(driver: Driver) -> Gpus:
    found = Gpus()
    found._nvml, found._devices = driver, [object()]
    return found


def test_the_share_of_others() -> None:
    """All but the server's; each call looks at what came since the last."""
    driver = Driver([7, 8, 9], {7: 40, 8: 25, 9: 10})
    found = gpus(driver)

    assert found.foreign({7}) == pytest.approx(0.35)
    assert found.foreign({7, 8}) == pytest.approx(0.10)
    assert driver.asked_since == [0, 1009]


def test_a_gpu_that_nobody_used() -> None:
    """The driver calls that an error; it is a share of 0."""
    assert gpus(Driver([7], {}, NotFound())).foreign({7}) == 0.0


@pytest.mark.parametrize(
    ("running", "failure"), [([107], None), ([], None), ([7], NVMLError()), ([7], NVMLError("MIG"))]
)
def test_a_server_that_cannot_be_told_from_others(running: list[int], failure: Exception | None) -> None:
    """Its process ids are others in a container, it is not on the GPU, or the driver does not say."""
    assert math.isnan(gpus(Driver(running, {107: 90}, failure)).foreign({7}))


def test_a_machine_without_a_gpu() -> None:
    """There is nothing to share."""
    found = Gpus()
    found.close()

    assert math.isnan(found.foreign({7}))

"""The use of GPUs, read from a driver's library that is made up, and from a machine that has none."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from tuner.profiler.gpu import GpuReading, Gpus

NOTHING = GpuReading()
SERVER = {7}


class NVMLError(Exception):
    """The driver's failure."""


class NotFound(NVMLError):
    """There is nothing new, or no process has used the device."""


@dataclass
class Device:
    """One GPU."""

    running: list[int] = field(default_factory=list)
    samples: list[tuple[int, int]] = field(default_factory=list)
    """Time stamp and use in percent."""
    used: list[tuple[int, int, int]] = field(default_factory=list)
    """Time stamp, process and its use in percent."""
    now: int | None = 0
    """Use in percent; None if the driver does not say."""
    memory: int = 1_000
    energy: int = 5_000
    """mJ."""
    mig: int | None = None
    """None if it cannot be split."""
    failure: Exception | None = None
    """What asking about processes raises."""
    closed: bool = False
    """Whether it may not be opened."""


class Driver:
    """A library with as much of ``pynvml`` as is used, installed in its place."""

    NVMLError = NVMLError
    NVMLError_NotFound = NotFound
    NVML_GPU_UTILIZATION_SAMPLES = 1

    def __init__(self, *devices: Device) -> None:
        self.devices = devices
        self.open = False

    def nvmlInit(self) -> None:  # noqa: N802
        self.open = True

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open = False

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Device:  # noqa: N802
        if self.devices[index].closed:
            raise NVMLError("Insufficient Permissions")
        return self.devices[index]

    def nvmlDeviceGetName(self, device: Device) -> str:  # noqa: N802
        return f"GPU {self.devices.index(device)}"

    def nvmlDeviceGetComputeRunningProcesses(self, device: Device) -> list[Any]:  # noqa: N802
        return [SimpleNamespace(pid=pid) for pid in device.running]

    def nvmlDeviceGetSamples(self, device: Device, kind: int, since: int) -> tuple[int, list[Any]]:  # noqa: N802
        new = [
            SimpleNamespace(timeStamp=at, sampleValue=SimpleNamespace(uiVal=use))
            for at, use in device.samples
            if at > since
        ]
        if not new:
            raise NotFound
        return kind, new

    def nvmlDeviceGetUtilizationRates(self, device: Device) -> Any:  # noqa: N802
        if device.now is None:
            raise NVMLError
        return SimpleNamespace(gpu=device.now)

    def nvmlDeviceGetProcessUtilization(self, device: Device, since: int) -> list[Any]:  # noqa: N802
        if device.failure is not None:
            raise device.failure
        new = [SimpleNamespace(timeStamp=at, pid=p, smUtil=use) for at, p, use in device.used if at > since]
        if not new:
            raise NotFound
        return new

    def nvmlDeviceGetMemoryInfo(self, device: Device) -> Any:  # noqa: N802
        return SimpleNamespace(used=device.memory)

    def nvmlDeviceGetTotalEnergyConsumption(self, device: Device) -> int:  # noqa: N802
        return device.energy

    def nvmlDeviceGetMigMode(self, device: Device) -> list[int]:  # noqa: N802
        if device.mig is None:
            raise NVMLError
        return [device.mig, device.mig]


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make the reader of some devices."""

    def make(*devices: Device) -> Gpus:
        monkeypatch.setitem(sys.modules, "pynvml", Driver(*devices))
        return Gpus()

    return make


def test_names_are_the_drivers(gpus: Any) -> None:
    """Of those that could be opened."""
    assert gpus(Device(memory=1), Device(closed=True), Device(memory=2)).names() == ["GPU 0", "GPU 2"]


def test_a_window_shows_its_own_mean(gpus: Any) -> None:
    """The samples since the reading before count, not the last moment."""
    device = Device([7], samples=[(1, 100), (2, 100)], now=99)
    found = gpus(device)
    first = found.read(SERVER)
    device.samples += [(3, 10), (4, 20), (5, 30)]

    assert first.share == pytest.approx(1.0)
    assert found.read(SERVER).share == pytest.approx(0.2)
    assert found.read(SERVER).share == pytest.approx(0.99)  # no new sample: what the driver says of now


def test_only_the_gpus_that_the_server_is_on_count(gpus: Any) -> None:
    """An idle or busy one beside them does not."""
    busy, other = Device([7], samples=[(1, 80)], memory=10), Device([9], samples=[(1, 30)], memory=5)

    reading = gpus(busy, other).read(SERVER)

    assert (reading.share, reading.memory, reading.energy) == (0.8, 10, 5.0)
    assert reading.devices == (0,)


def test_a_model_on_the_processor_has_no_gpu(gpus: Any) -> None:
    """Whatever others do with those of the machine; one that uses a GPU against its configuration has it."""
    device = Device([9], samples=[(1, 80)])

    assert repr(gpus(device).read(SERVER, elsewhere=True)) == repr(NOTHING)
    device.running.append(7)
    assert gpus(device).read(SERVER, elsewhere=True).share == pytest.approx(0.8)


def test_all_count_where_the_driver_does_not_show_the_server(gpus: Any) -> None:
    """In a container its process ids are others; what foreign processes use is not known then."""
    one, two = Device([107], samples=[(1, 80)], memory=10), Device([], samples=[(1, 30)], memory=5)

    reading = gpus(one, two).read(SERVER)

    assert reading.share == pytest.approx(0.55)
    assert (reading.memory, reading.energy) == (15, 10.0)
    assert math.isnan(reading.foreign)


def test_the_share_of_others_is_not_the_servers(gpus: Any) -> None:
    """Where the driver tells processes apart; each reading looks at what came since the last."""
    device = Device([7, 8, 9], samples=[(1, 75)], used=[(1, 7, 40), (1, 8, 25), (1, 9, 10)])
    found = gpus(device)
    first = found.read(SERVER)
    device.samples.append((2, 50))
    device.used.append((2, 8, 50))
    second = found.read(SERVER)

    assert (first.foreign, first.share) == (pytest.approx(0.35), pytest.approx(0.40))
    assert (second.foreign, second.share) == (pytest.approx(0.5), pytest.approx(0.0))


def test_a_gpu_that_nobody_used(gpus: Any) -> None:
    """The driver calls that an error; it is a share of 0."""
    reading = gpus(Device([7], samples=[(1, 0)])).read(SERVER)

    assert (reading.share, reading.foreign) == (0.0, 0.0)


def test_without_permission_the_whole_use_counts(gpus: Any) -> None:
    """The driver does not tell processes apart."""
    reading = gpus(Device([7], samples=[(1, 60)], failure=NVMLError())).read(SERVER)

    assert reading.share == pytest.approx(0.6)
    assert math.isnan(reading.foreign)


@pytest.mark.parametrize("split", [True, False])
def test_a_split_gpu_is_not_known(gpus: Any, split: bool) -> None:
    """In MIG mode what the driver says of the whole is about nobody; memory and energy are known."""
    reading = gpus(Device([7], samples=[(1, 60)], mig=int(split))).read(SERVER)

    assert math.isnan(reading.share) == split
    assert math.isnan(reading.foreign) == split
    assert reading.memory == 1_000


def test_a_device_that_does_not_say(gpus: Any) -> None:
    """Not known is not 0."""
    assert math.isnan(gpus(Device([7], now=None)).read(SERVER).share)


def test_a_device_that_may_not_be_opened(gpus: Any) -> None:
    """In a container it may be that of others, or it has failed; the rest are read."""
    found = gpus(Device(closed=True), Device([7], samples=[(1, 60)]))

    assert len(found) == 1
    assert found.read(SERVER).share == pytest.approx(0.6)


def test_a_machine_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """No library, or no device: nothing is known, and nothing is open."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    without = Gpus()
    monkeypatch.setitem(sys.modules, "pynvml", Driver())
    empty = Gpus()

    for found in (without, empty):
        reading = found.read(SERVER)
        assert len(found) == 0
        assert all(math.isnan(getattr(reading, name)) for name in ("share", "foreign", "memory", "energy"))
        found.close()


def test_closing_lets_go_of_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readings are not known from then on; twice is harmless."""
    driver = Driver(Device([7], samples=[(1, 60)]))
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    found = Gpus()
    assert driver.open

    found.close()
    found.close()

    assert not driver.open
    assert math.isnan(found.read(SERVER).share)

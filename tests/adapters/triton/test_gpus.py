"""The GPUs on Triton's metrics page: those that the model's instances are on, and no others."""

from __future__ import annotations

import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.builders import configuration
from tuner.adapters.backend import Counters
from tuner.adapters.metrics.gpu import GpuUse, gpu_figures
from tuner.adapters.triton.embedded import TritonOptions
from tuner.adapters.triton.embedded.repository import make_repository
from tuner.adapters.triton.metrics import parse_metrics
from tuner.errors import InvalidInput
from tuner.profiler.attachment import require_resource
from tuner.profiler.gpu import GpuReading
from tuner.profiler.host import RemoteHost
from tuner.profiler.source import HostReading
from tuner.profiler.window import Reading, assemble

PAGE = (Path(__file__).parent / "gpu_page.txt").read_text()
"""In the form that Triton writes, with three GPUs."""
H200 = (Path(__file__).parent / "h200_page.txt").read_text()
"""What a Triton 2.51 with one NVIDIA H200 wrote under load."""
FIRST = GpuUse(uuid="GPU-1111", share=0.5, memory=2e9, power=120.5, energy=10000.5)
SECOND = GpuUse(uuid="GPU-2222", share=0.3, memory=3e9, power=99.5, energy=9000.0)


def test_a_model_on_two_of_three_gpus() -> None:
    """The third belongs to another model, and is busy."""
    assert parse_metrics(PAGE, "resnet50").gpus == (FIRST, SECOND)


def test_a_model_on_the_cpu() -> None:
    """It uses none of them."""
    assert parse_metrics(PAGE, "cpu_only").gpus == ()


@pytest.mark.parametrize(("gpus", "known"), [(1, True), (3, False)])
def test_a_page_that_does_not_say_where_the_model_is(gpus: int, known: bool) -> None:
    """If its configuration puts it on a GPU, it is the server's only one; of several nobody knows."""
    kept = [line for line in PAGE.splitlines() if "model=" not in line]
    kept = [line for line in kept if gpus == 3 or not any(f"GPU-{n}" in line for n in ("2222", "3333"))]
    page = "\n".join([*kept, ""])

    assert parse_metrics(page, "resnet50").gpus == ()
    assert parse_metrics(page, "resnet50", on_gpu=True).gpus == ((FIRST,) if known else ())


def test_a_page_of_a_real_server() -> None:
    """A model of the Python backend on the only GPU: no sample says that it is there."""
    (gpu,) = parse_metrics(H200, "deep", on_gpu=True).gpus

    assert (gpu.share, gpu.memory, gpu.power, gpu.energy) == (0.54, 2034237440.0, 342.071, 1413.505)


def test_a_server_that_has_not_sampled_its_gpus_yet() -> None:
    """In its first two seconds it says 0 of everything, which is not known rather than 0."""
    fresh = re.sub(r"^(nv_(?:gpu|energy)_.*}) .*$", r"\1 0", H200, flags=re.MULTILINE)

    (gpu,) = parse_metrics(fresh, "deep", on_gpu=True).gpus

    assert gpu.uuid.startswith("GPU-")
    assert all(math.isnan(value) for value in (gpu.share, gpu.memory, gpu.power, gpu.energy))


def test_a_server_that_shows_no_gpus() -> None:
    """Started with --allow-gpu-metrics=false: not known, rather than 0."""
    page = "\n".join([*(line for line in PAGE.splitlines() if not line.startswith("nv_gpu_util")), ""])

    assert all(math.isnan(gpu.share) for gpu in parse_metrics(page, "resnet50").gpus)
    without = "\n".join(
        [*(line for line in PAGE.splitlines() if "nv_gpu" not in line and "energy" not in line), ""]
    )
    assert parse_metrics(without, "resnet50", on_gpu=True).gpus == ()


def reading(time: float, *gpus: GpuUse, host: HostReading | None = None) -> Reading:
    counters = Counters(time=time, requests=int(10 * time), gpus=gpus)
    return Reading(counters=counters, host=host or HostReading(time=time), configuration=configuration())


def use(share: float) -> GpuUse:
    return GpuUse(uuid="GPU-1111", share=share, memory=1e9, power=100 * share, energy=math.nan)


def test_a_window_of_a_remote_server() -> None:
    """The mean over what was read within it and at its end; the memory at its end."""
    within = [reading(2.0, use(0.2)).counters]

    window = assemble(reading(1.0, use(0.9)), reading(3.0, use(0.4)), within=within)

    assert window.gpu == pytest.approx(0.3)
    assert window.gpu_power == pytest.approx(30.0)
    assert window.gpu_memory == 1e9


def test_this_machines_driver_goes_before_the_servers_page() -> None:
    """It samples more often, and tells processes apart."""
    hosts = [HostReading(time=t, gpu=GpuReading(share=0.7, memory=5.0, energy=100.0 * t)) for t in (1.0, 3.0)]

    window = assemble(reading(1.0, use(0.9), host=hosts[0]), reading(3.0, use(0.4), host=hosts[1]))

    assert (window.gpu, window.gpu_memory) == (0.7, 5.0)
    assert window.gpu_power == pytest.approx(100.0)


def test_no_gpu_is_not_known() -> None:
    """Neither here nor there."""
    window = assemble(reading(1.0), reading(3.0))

    assert all(math.isnan(value) for value in (window.gpu, window.gpu_memory, window.gpu_power))


@pytest.mark.parametrize("gpus", [(), (GpuUse(uuid="a"),)])
def test_least_gpu_use_needs_somebody_who_shows_it(gpus: tuple[GpuUse, ...]) -> None:
    """This machine's driver, or the server's own metrics; a page without the use is not enough."""
    require_resource(_attached(FIRST), "gpu")

    with pytest.raises(
        InvalidInput, match="no GPU can be seen from this machine, and the server reports none"
    ):
        require_resource(_attached(*gpus), "gpu")


def test_a_fresh_server_is_given_time_to_sample_its_gpus() -> None:
    """Two seconds; who has just started it would be refused."""
    pages = [[use(math.nan)], [use(math.nan)], [use(0.3)]]
    attached = _attached()
    attached.backend.counters = lambda: reading(1.0, *(pages.pop(0) if len(pages) > 1 else pages[0])).counters

    require_resource(attached, "gpu")

    assert len(pages) == 1


def _attached(*gpus: GpuUse) -> Any:
    slept: list[float] = []
    return SimpleNamespace(
        host=RemoteHost(),
        clock=SimpleNamespace(sleep=slept.append),
        backend=SimpleNamespace(counters=lambda: reading(1.0, *gpus).counters),
    )


def test_power_from_the_energy() -> None:
    """Where the server counts only that."""
    ends = [[GpuUse(uuid="a", energy=100.0)], [GpuUse(uuid="a", energy=400.0)]]

    assert gpu_figures(ends, 2.0)["gpu_power"] == pytest.approx(150.0)
    assert math.isnan(gpu_figures([[GpuUse(uuid="b", energy=1.0)], ends[1]], 2.0)["gpu_power"])


@pytest.mark.parametrize(("gpu", "kind"), [(True, "KIND_GPU"), (False, "KIND_CPU")])
def test_an_embedded_server_serves_on_gpus_if_it_shall(
    gpu: bool, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its models' instances are there, and it exports their use."""
    monkeypatch.setattr(
        "tuner.adapters.triton.embedded.repository._network", lambda *_: tmp_path / "model.onnx"
    )

    make_repository(tmp_path, ["mlp"], gpu=gpu)

    assert kind in (tmp_path / "mlp" / "config.pbtxt").read_text()
    assert f"--allow-gpu-metrics={str(gpu).lower()}" in TritonOptions(gpu=gpu).flags(["mlp"])

"""A model on an NVIDIA GPU: a grid of batch, delay and instances, then tuning for latency and for GPU use.

It needs a machine with such a GPU and onnxruntime with CUDA. The load is found on the machine: more than the
default configuration bears, so that requests must be batched. The SLO is twice the best p95 of the grid.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

from tuner.adapters.triton.embedded import TritonOptions
from tuner.agents.rrl import RRL
from tuner.control import WATCHED
from tuner.control.drive.sweep import measure_configurations
from tuner.errors import InvalidInput, Refused
from tuner.experiments.frame.experiment import Answers, Scaled, SequentialExperiment, experiment
from tuner.experiments.frame.result import Row, row
from tuner.experiments.live.testbed import GRIDS, QUICK_GRIDS, distinct, drive, objective, repeated, triton
from tuner.knobs import Configuration
from tuner.laboratory.capacity import FIRST_RATE, find_capacity
from tuner.measurement import Measurement
from tuner.profiler.attachment import Attachment, require_resource
from tuner.profiler.gpu import Gpus

__all__ = ["GpuProof", "require_gpu"]

MODEL, WINDOW = "wide", 4.0
LOAD = 1.3
"""The load, of what the default configuration bears."""
GOALS = ("latency", "gpu")


class Swept(NamedTuple):
    """The windows of one configuration of the grid."""

    configuration: Configuration
    window: Measurement


class Proof(NamedTuple):
    """What was found on one machine."""

    rate: float
    """requests/s"""
    slo: float
    """s"""
    grid: list[Swept]
    tuned: dict[str, Swept]
    """Goal -> where tuning for it left the server, and how it served then."""


def require_gpu() -> None:
    """Check that a model can be served on a GPU of this machine.

    Raises:
        InvalidInput: There is none, or onnxruntime cannot use it.
    """
    gpus = Gpus()
    found = len(gpus)
    gpus.close()
    if not found:
        problem = "the NVIDIA driver shows no GPU on this machine"
        raise InvalidInput("gpu-proof", problem, "run it where nvidia-smi lists one")
    if find_spec("onnxruntime") is not None:
        import onnxruntime

        if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
            return
    fix = "install one that does: pip install onnxruntime-gpu"
    raise InvalidInput("gpu-proof", "onnxruntime does not use CUDA here", fix)


@experiment(
    name="gpu-proof",
    title="A model on an NVIDIA GPU: the grid of batch, delay and instances, and where tuning ends",
    minutes=15,
    live=True,
)
class GpuProof(SequentialExperiment[Proof]):
    """Sweeps the grid on one server, then tunes fresh ones for each goal."""

    windows = Scaled(24, quick=3)
    seconds = Scaled(WINDOW, quick=1.0)
    options_of_server = TritonOptions(gpu=True)

    def prepare(self) -> None:
        """End at once where there is no GPU."""
        require_gpu()

    def proceed(self) -> Proof:
        rate, grid = repeated(self._loaded, self.report)
        slo = 2 * min(swept.window.latency_p95 for swept in grid)
        tuned = {goal: repeated(partial(self._tune, goal, rate, slo), self.report) for goal in GOALS}
        return Proof(rate, slo, grid, tuned)

    def rows(self, found: Answers[None, Proof]) -> Iterator[Row]:
        (proof,) = found[None]
        best = min(proof.grid, key=lambda swept: swept.window.latency_p95)
        least = min(
            (one for one in proof.grid if one.window.latency_p95 <= proof.slo), key=lambda one: one.window.gpu
        )
        for name, swept in (("best p95", best), ("least GPU use within the SLO", least)):
            yield from _figures(f"grid, {name}", swept.window)
        for goal, swept in proof.tuned.items():
            yield from _figures(f"tuned for {goal}", swept.window)
        ratio = proof.tuned["latency"].window.latency_p95 / best.window.latency_p95
        yield row("tuned for latency: p95 over the grid's best", [ratio], published=1.15, note="at most")
        saved = 100 * (1 - proof.tuned["gpu"].window.gpu / best.window.gpu)
        yield row("tuned for gpu: GPU use saved against the best p95", [saved], unit="%")

    def configuration(self) -> dict[str, Any]:
        return {"model": MODEL, "grids": GRIDS, "window": self.seconds, "windows": self.windows}

    def details(self, found: Answers[None, Proof]) -> dict[str, Any]:
        (proof,) = found[None]
        return {
            "rate": proof.rate,
            "slo": proof.slo,
            "grid": [{**dict(one.configuration), **one.window.to_json()} for one in proof.grid],
            "tuned": {goal: dict(one.configuration) for goal, one in proof.tuned.items()},
        }

    def _server(self, rate: float) -> Any:
        quick = self.options.quick
        grids = QUICK_GRIDS if quick else GRIDS
        return triton(rate, model=MODEL, grids=grids, options=self.options_of_server)

    def _loaded(self) -> tuple[float, list[Swept]]:
        """Find the load, and measure the grid under it."""
        with self._server(FIRST_RATE) as attachment:
            require_resource(attachment, "gpu")
            rate = float(f"{LOAD * find_capacity(attachment):.2g}")
            self.report(f"load: {rate:g} requests/s")
            attachment.set_rate(rate)
            return rate, list(self._sweep(attachment))

    def _sweep(self, attachment: Attachment) -> Iterator[Swept]:
        """Measure every configuration of the grid once; what the server refuses is left out."""
        turns = measure_configurations(
            attachment.backend,
            attachment.profiler,
            distinct(attachment),
            seconds=self.seconds,
            restore=attachment.restore,
        )
        for configuration, outcome in turns:
            text = attachment.space.format(configuration)
            if isinstance(outcome, Refused):
                self.report(f"{text}: refused: {outcome}")
                continue
            self.report(f"{text}: p95 {1e3 * outcome.latency_p95:.1f} ms, GPU {outcome.gpu:.0%}")
            yield Swept(configuration, outcome)

    def _tune(self, goal: str, rate: float, slo: float) -> Swept:
        """Tune a fresh server for a goal, and measure where that leaves it."""
        with self._server(rate) as attachment:
            aim = objective(attachment, slo=slo, goal=goal)
            agent = RRL(attachment.space, objective=aim)
            driver = drive(attachment, aim, agent, window=self.seconds, limits=WATCHED)
            for _ in range(self.windows):
                driver.step()
            left = driver.finish()
            agent.close()
            return Swept(left, attachment.profiler.measure(2 * self.seconds, settle=2.0))


def _figures(name: str, window: Measurement) -> Iterator[Row]:
    yield row(f"{name}: p95", [1e3 * window.latency_p95], unit="ms")
    yield row(f"{name}: GPU use", [100 * window.gpu], unit="%")
    yield row(f"{name}: GPU memory", [window.gpu_memory / 2**20], unit="MiB")
    yield row(f"{name}: power", [window.gpu_power], unit="W")

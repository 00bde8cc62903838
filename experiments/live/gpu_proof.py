"""A model on an NVIDIA GPU: a grid of batch, delay and instances, then tuning for latency and for GPU use.

It needs a machine with such a GPU and onnxruntime with CUDA. The load is found on the machine: more than the
default configuration bears, so that requests must be batched. The SLO is twice the best p95 of the grid. What
tuning left is measured in turns with the best of the grid, on a server of their own.
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
from tuner.errors import InvalidInput
from tuner.experiments.frame.experiment import Answers, Scaled, SequentialExperiment, experiment
from tuner.experiments.frame.result import Row, row
from tuner.experiments.live.testbed import QUICK_GRIDS, distinct, drive, objective, repeated, triton
from tuner.knobs import Configuration
from tuner.laboratory.capacity import FIRST_RATE, find_capacity
from tuner.measurement import Measurement
from tuner.profiler.attachment import Attachment, require_resource
from tuner.profiler.gpu import Gpus

__all__ = ["GpuProof", "choose", "require_gpu"]

MODEL = "deep"
GRIDS: dict[str, tuple[float, ...]] = {
    "max_batch_size": (1, 4, 16, 64),
    "max_queue_delay": (0.0, 0.002, 0.01),
    "instances": (1, 2),
}
LOAD = 1.3
"""The load, of what the default configuration bears."""
GOALS = ("latency", "gpu")
BEST, LEAST = "grid, best p95", "grid, least GPU use within the SLO"


class Swept(NamedTuple):
    """The window of one configuration of the grid."""

    configuration: Configuration
    window: Measurement


class Proof(NamedTuple):
    """What was found on one machine."""

    gpus: list[str]
    """Their names."""
    rate: float
    """requests/s"""
    slo: float
    """s"""
    grid: list[Swept]
    tried: dict[str, list[Swept]]
    """Goal -> the windows of tuning for it."""
    chosen: dict[str, Configuration]
    """The grid's best, and where tuning for each goal left the server."""
    judged: dict[Configuration, list[Measurement]]
    """The windows of these in turns."""

    def windows(self, name: str) -> list[Measurement]:
        """Return the windows by which a choice is judged."""
        return self.judged[self.chosen[name]]

    def ratios(self, name: str, beside: str, figure: str) -> list[float]:
        """Return a figure of one choice over that of another, round by round."""
        pairs = zip(self.windows(name), self.windows(beside), strict=True)
        return [getattr(one, figure) / getattr(other, figure) for one, other in pairs]


def choose(grid: list[Swept]) -> tuple[float, dict[str, Configuration]]:
    """Return the SLO, s, and what is best in the grid and uses the GPU least within the SLO."""
    best = min(grid, key=lambda swept: swept.window.latency_p95)
    slo = 2 * best.window.latency_p95
    keeping = [swept for swept in grid if swept.window.latency_p95 <= slo]
    least = min(keeping, key=lambda swept: swept.window.gpu)
    return slo, {BEST: best.configuration, LEAST: least.configuration}


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
    fix = "install one that does: pip install onnxruntime-gpu[cuda,cudnn]"
    raise InvalidInput("gpu-proof", "onnxruntime does not use CUDA here", fix)


@experiment(
    name="gpu-proof",
    title="A model on an NVIDIA GPU: the grid of batch, delay and instances, and where tuning ends",
    minutes=8,
    repeated=False,
    live=True,
    foreign_limit=True,
)
class GpuProof(SequentialExperiment[Proof]):
    """Sweeps the grid on one server, tunes fresh ones for each goal, and compares on a last one."""

    windows = Scaled(16, quick=3)
    seconds = Scaled(4.0, quick=1.0)
    rounds = Scaled(3, quick=1)
    options_of_server = TritonOptions(gpu=True)

    def prepare(self) -> None:
        """End at once where there is no GPU."""
        require_gpu()

    def proceed(self) -> Proof:
        gpus = Gpus()
        names = gpus.names()
        gpus.close()
        rate, grid = repeated(self._loaded, self.report)
        slo, chosen = choose(grid)
        tried: dict[str, list[Swept]] = {}
        for goal in GOALS:
            tried[goal], chosen[_tuned(goal)] = repeated(partial(self._tune, goal, rate, slo), self.report)
        judged = repeated(partial(self._judge, rate, list(dict.fromkeys(chosen.values()))), self.report)
        return Proof(names, rate, slo, grid, tried, chosen, judged)

    def rows(self, found: Answers[None, Proof]) -> Iterator[Row]:
        (proof,) = found[None]
        latency, gpu = _tuned("latency"), _tuned("gpu")
        over = proof.ratios(latency, BEST, "latency_p95")
        yield row("tuned for latency: p95 over the grid's best", over, published=1.15, note="at most")
        over = proof.ratios(gpu, LEAST, "gpu")
        yield row("tuned for gpu: GPU use over the grid's least", over, published=1.15, note="at most")
        saved = [100 * (1 - ratio) for ratio in proof.ratios(gpu, BEST, "gpu")]
        yield row("tuned for gpu: GPU use saved against the best p95", saved, unit="%")
        for name in proof.chosen:
            yield from _figures(name, proof.windows(name))

    def configuration(self) -> dict[str, Any]:
        return {
            "model": MODEL,
            "grids": self._grids(),
            "window": self.seconds,
            "windows": self.windows,
            "rounds": self.rounds,
        }

    def details(self, found: Answers[None, Proof]) -> dict[str, Any]:
        (proof,) = found[None]
        return {
            "gpus": proof.gpus,
            "rate": proof.rate,
            "slo": proof.slo,
            "grid": [_plain(swept) for swept in proof.grid],
            "tried": {goal: [_plain(swept) for swept in windows] for goal, windows in proof.tried.items()},
            "chosen": {name: dict(configuration) for name, configuration in proof.chosen.items()},
            "judged": {name: [window.to_json() for window in proof.windows(name)] for name in proof.chosen},
        }

    def _grids(self) -> dict[str, tuple[float, ...]]:
        return QUICK_GRIDS if self.options.quick else GRIDS

    def _server(self, rate: float) -> Any:
        grids, limit = self._grids(), self.options.foreign_limit
        return triton(rate, model=MODEL, grids=grids, foreign_limit=limit, options=self.options_of_server)

    def _loaded(self) -> tuple[float, list[Swept]]:
        """Find the load, and measure the grid under it."""
        with self._server(FIRST_RATE) as attachment:
            require_resource(attachment, "gpu")
            rate = float(f"{LOAD * find_capacity(attachment):.2g}")
            self.report(f"load: {rate:g} requests/s")
            attachment.set_rate(rate)
            return rate, list(self._sweep(attachment, distinct(attachment)))

    def _judge(self, rate: float, chosen: list[Configuration]) -> dict[Configuration, list[Measurement]]:
        """Measure configurations in turns on a fresh server."""
        with self._server(rate) as attachment:
            found: dict[Configuration, list[Measurement]] = {}
            for swept in self._sweep(attachment, chosen, repeats=self.rounds):
                found.setdefault(swept.configuration, []).append(swept.window)
            return found

    def _sweep(
        self, attachment: Attachment, configurations: list[Configuration], *, repeats: int = 1
    ) -> Iterator[Swept]:
        """Measure configurations in turns; what the server refuses is left out."""
        turns = measure_configurations(
            attachment.backend,
            attachment.profiler,
            configurations,
            seconds=self.seconds,
            repeats=repeats,
            restore=attachment.restore,
        )
        for configuration, outcome in turns:
            text = attachment.space.format(configuration)
            if not isinstance(outcome, Measurement):
                self.report(f"{text}: refused: {outcome}")
                continue
            self.report(f"{text}: {_told(outcome)}")
            yield Swept(configuration, outcome)

    def _tune(self, goal: str, rate: float, slo: float) -> tuple[list[Swept], Configuration]:
        """Tune a fresh server for a goal; return the windows, and where that leaves it."""
        with self._server(rate) as attachment:
            space = attachment.space
            aim = objective(attachment, slo=slo, goal=goal)
            agent = RRL(space, objective=aim)
            driver = drive(attachment, aim, agent, window=self.seconds, limits=WATCHED)
            tried: list[Swept] = []
            for number in range(self.windows):
                running = space.nearest(driver.running)
                window = driver.step(last=number == self.windows - 1).measurement
                if window is not None:
                    self.report(f"tuning for {goal}, {space.format(running)}: {_told(window)}")
                    tried.append(Swept(running, window))
            left = space.nearest(driver.finish())
            agent.close()
            self.report(f"tuned for {goal}: {space.format(left)}")
            return tried, left


def _tuned(goal: str) -> str:
    return f"tuned for {goal}"


def _told(window: Measurement) -> str:
    return f"p95 {1e3 * window.latency_p95:.1f} ms, GPU {window.gpu:.0%}"


def _plain(swept: Swept) -> dict[str, Any]:
    return {**dict(swept.configuration), **swept.window.to_json()}


def _figures(name: str, windows: list[Measurement]) -> Iterator[Row]:
    yield row(f"{name}: p95", [1e3 * window.latency_p95 for window in windows], unit="ms")
    yield row(f"{name}: GPU use", [100 * window.gpu for window in windows], unit="%")
    yield row(f"{name}: GPU memory", [window.gpu_memory / 2**20 for window in windows], unit="MiB")
    yield row(f"{name}: power", [window.gpu_power for window in windows], unit="W")

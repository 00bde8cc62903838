"""RRL, Figures 3 to 6: what parallelism does to latency, and that alike configurations perform alike.

The authors' latency surface is not public; this is that of our server models
(:mod:`tuner.envs.simulator.tfserving_cpu` and ``tfserving_gpu``), whose constants were chosen so that it has
the shape that the paper's figures show.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tuner.envs.batched_server import BatchedModel
from tuner.envs.simulator.batched import BatchedSimulator
from tuner.envs.simulator.tfserving_cpu import CPU_MODELS
from tuner.envs.simulator.tfserving_gpu import GPU_MODELS, KNOBS
from tuner.experiments.frame.experiment import Answers, Experiment, Scaled, experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.report import style
from tuner.report.series import Series, curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["ParallelismSurface", "Surface"]

LIGHT = 2.4
"""Requests/s that one thread for everything just carries: the load of Fig. 3."""
SLO = {"cpu": 0.55, "gpu": 0.52}
BATCH_50 = 10
"""Grid step of batches of 50."""
SHOWN = (1.0, 2.0, 3.0, 5.0, 10.0)
"""Distances that have rows."""


class Surface(NamedTuple):
    """Every configuration of a model, under one load."""

    kind: str
    model: str
    rate: float


CASES = {
    "Inception, homogeneous sizes": Surface("cpu", "inception", 14.0),
    "Deep Speech, heterogeneous sizes": Surface("cpu", "deepspeech", 14.0),
    "Inception on a GPU": Surface("gpu", "inception", 61.0),
}
FIGURE_3 = Surface("cpu", "inception", LIGHT)
FIGURE_4, _, FIGURE_5 = CASES.values()


@experiment(
    name="rrl-fig6",
    title="Latency against parallelism; alike configurations perform alike (and Figs. 3, 4, 5)",
    paper="RRL",
    minutes=3,
)
class ParallelismSurface(Experiment[Surface, np.ndarray]):
    """The mean latency of every configuration of three servers, and of one under a light load.

    The answers have a place for each configuration.   # (11, 11, 11) s.
    """

    requests = Scaled(3000.0, quick=200.0)
    """Of a window, at the load of the figure."""

    def tasks(self) -> list[Surface]:
        return [FIGURE_3, *CASES.values()]

    def measure(self, task: Surface, seed: int) -> np.ndarray:
        """Return the surface in one window, the same arrivals for all configurations."""
        model: BatchedModel = (CPU_MODELS if task.kind == "cpu" else GPU_MODELS)[task.model]
        space = model.space()
        simulator = BatchedSimulator(model.plans(space), model.traffic(), workers=1)
        arrays = simulator.step(
            np.arange(space.size),
            np.full(space.size, task.rate),
            np.full(space.size, seed, np.uint64),
            self.requests / task.rate,
        )
        return np.asarray(arrays.mean.reshape(space.shape))

    def rows(self, found: Answers[Surface, np.ndarray]) -> Iterator[Row]:
        yield from _rows_of_figure_3(found[FIGURE_3])
        yield from _map_rows("Fig. 4", [each[:, :, 10] for each in found[FIGURE_4]], SLO["cpu"])
        yield from _map_rows("Fig. 5", [each[BATCH_50] for each in found[FIGURE_5]], SLO["gpu"])
        for name, task in CASES.items():
            bins, factors = _factors(found[task])
            for distance in SHOWN:
                yield row(
                    f"Fig. 6, {name}: factor at distance {distance:g}",
                    factors[:, bins.tolist().index(distance), 1].tolist(),
                    note="median over the pairs of configurations that far apart",
                )

    def series(self, found: Answers[Surface, np.ndarray]) -> Iterator[Series]:
        steps = np.arange(1, 11)
        gains = [each[1, 1, 1] / each for each in found[FIGURE_3]]
        for name, where in _lines(steps).items():
            yield curve(
                name, steps.tolist(), np.array([gain[where] for gain in gains]).T.tolist(), panel="Fig. 3"
            )
        for name, task in CASES.items():
            bins, factors = _factors(found[task])
            for place, label in enumerate(("lower quartile", "median", "upper quartile")):
                yield curve(label, bins.tolist(), factors[:, :, place].T.tolist(), panel=name)

    def configuration(self) -> dict[str, Any]:
        rates = {"Fig. 3": LIGHT, **{name: task.rate for name, task in CASES.items()}}
        return {"requests": self.requests, "rates": rates}

    def details(self, found: Answers[Surface, np.ndarray]) -> dict[str, Any]:
        cpu, gpu = found[FIGURE_4], found[FIGURE_5]
        return {
            "mean_s": {
                "Fig. 4, request (rows) and inter-op parallelism": _median(each[:, :, 10] for each in cpu),
                "Fig. 5, batch timeout (rows) and threads": _median(each[BATCH_50] for each in gpu),
            }
        }

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw Fig. 6, and Figs. 3, 4 and 5 beside it."""
        figure, axes = style.figure("Difference in latency against distance of configurations", columns=3)
        for axis, name in zip(axes[0], CASES, strict=True):
            style.curves(axis, result.panel(name))
            axis.set(title=name, xlabel="distance, grid steps", yscale="log")
            style.decades(axis.yaxis)
        axes[0, 0].set_ylabel("factor between two mean latencies")
        style.legend(axes[0, 0])
        maps = [np.array(values) for values in result.details["mean_s"].values()]
        threads = [f"{step}" for step in range(11)]
        timeouts = [f"{1000 * value:g}" for value in KNOBS[1].grid]
        return [
            style.Drawing(figure),
            _draw_figure_3(result),
            _draw_map("fig4", maps[0], ("inter-op parallelism", "request parallelism"), (threads, threads)),
            _draw_map("fig5", maps[1], ("batch threads", "batch timeout, ms"), (threads, timeouts)),
        ]


def _lines(steps: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """The lines of Fig. 3 through the surface: more of each kind of parallelism, and of all three."""
    one = np.ones_like(steps)
    return {
        "request": (steps, one, one),
        "inter-op": (one, steps, one),
        "intra-op": (one, one, steps),
        "all three": (steps, steps, steps),
    }


def _rows_of_figure_3(surfaces: list[np.ndarray]) -> list[Row]:
    """How many times faster than sequential execution more of each kind of parallelism is."""
    gains = [each[1, 1, 1] / each for each in surfaces]
    place = np.unravel_index(int(np.median(surfaces, axis=0).argmin()), surfaces[0].shape)
    note = f"at {tuple(int(step) for step in place)}, of 1,331; load {LIGHT} requests/s"
    best = [float(gain.max()) for gain in gains]
    most = [float(gain[10, 10, 10]) for gain in gains]
    return [
        row("Fig. 3: best over (1, 1, 1)", best, unit="times faster", published=10.0, note=note),
        row("Fig. 3: (10, 10, 10) over (1, 1, 1)", most, unit="times faster"),
    ]


def _map_rows(figure: str, maps: list[np.ndarray], slo: float) -> list[Row]:
    """What a heat map shows in numbers."""
    least = [float(each.min()) for each in maps]
    return [
        row(f"{figure}: least mean latency", least, unit="s"),
        row(f"{figure}: greatest over least", [float(each.max() / each.min()) for each in maps]),
        row(
            f"{figure}: configurations with a mean latency below {1000 * slo:g} ms",
            [100.0 * float((each < slo).mean()) for each in maps],
            unit="%",
        ),
    ]


def _factors(surfaces: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """By which factor latencies differ, against the distance of the configurations.

    Returns:
        The distances, (bins,), and the quartiles of the factors, (seeds, bins, 3).
    """
    distances = _distances(surfaces[0].shape)
    bins = np.unique(np.round(distances[distances > 0]))
    pairs = [np.round(distances) == distance for distance in bins]
    factors = []
    for surface in surfaces:
        logarithm = np.log(surface.ravel())
        differences = np.abs(logarithm[:, None] - logarithm[None, :])
        factors.append([np.exp(np.quantile(differences[pair], (0.25, 0.5, 0.75))) for pair in pairs])
    return bins, np.array(factors)


def _distances(shape: tuple[int, ...]) -> np.ndarray:
    """Euclidean distance in grid steps between all configurations.   # (size, size)."""
    steps = np.indices(shape).reshape(len(shape), -1).T
    squares = (steps**2).sum(axis=1)
    return np.asarray(np.sqrt(np.maximum(squares[:, None] + squares[None, :] - 2 * steps @ steps.T, 0)))


def _median(maps: Any) -> list[list[float]]:
    return [[float(f"{value:.4g}") for value in line] for line in np.median(list(maps), axis=0)]


def _draw_figure_3(result: Result) -> style.Drawing:
    figure, axes = style.figure(
        f"Fig. 3: faster than sequential execution, {LIGHT} requests/s", size=(6, 3.8)
    )
    style.curves(axes[0, 0], result.panel("Fig. 3"))
    axes[0, 0].set(xlabel="parallelism (the others stay at 1)", ylabel="times faster than (1, 1, 1)")
    axes[0, 0].set_ylim(bottom=0)
    style.legend(axes[0, 0])
    return style.Drawing(figure, "fig3")


TITLES = {
    "fig4": "Fig. 4: mean latency on a CPU, 14 requests/s, intra-op parallelism 10",
    "fig5": "Fig. 5: mean latency on a GPU, 61 requests/s, batches of up to 50",
}


def _draw_map(
    name: str, values: np.ndarray, labels: tuple[str, str], ticks: tuple[list[str], list[str]]
) -> style.Drawing:
    """Draw a heat map, whole and near its best; lighter is less, as in the paper."""
    figure, axes = style.figure(TITLES[name], columns=2, size=(10, 4.2))
    down, across = (int(place) for place in np.unravel_index(values.argmin(), values.shape))
    # Step 0 stands for another number of threads: it is no neighbour of step 1, and not in the close view.
    top, left = (min(max(place - 1, 1), 6) for place in (down, across))
    views = ((slice(0, 11), slice(0, 11)), (slice(top, top + 5), slice(left, left + 5)))
    for axis, (r, c) in zip(axes[0], views, strict=True):
        _heat(axis, values[r, c], ticks[1][r], ticks[0][c])
        axis.set(xlabel=labels[0], ylabel=labels[1])
    axes[0, 0].set_title("all")
    axes[0, 1].set_title("near the best")
    return style.Drawing(figure, name)


def _heat(axis: Axes, values: np.ndarray, down: list[str], across: list[str]) -> None:
    scale = "log" if values.max() > 10 * values.min() else "linear"
    image = axis.imshow(values, cmap="Blues", norm=scale, origin="lower", aspect="auto")
    axis.set_xticks(range(len(across)), across)
    axis.set_yticks(range(len(down)), down)
    axis.grid(visible=False)
    bar = axis.figure.colorbar(image, ax=axis, label="mean latency, s")
    if scale == "log":
        style.decades(bar.ax.yaxis)

"""Symphony, Figure 11: how many requests the scheduler can handle, and how goodput grows with accelerators.

Left in the paper: the scheduler alone. Requests and accelerators are objects in the process, nothing is sent
or executed. Measured here with the code of ``tuner bench scheduler``: against threads, each scheduling a
sub-cluster of its own, against sessions, and against accelerators. Right: the goodput of 20 equally popular
models like ResNet50 with an SLO of 100 ms.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tuner.cluster import Scenario, Session
from tuner.cluster.goodput import goodput
from tuner.experiments.benchmarks.scenarios import cluster, grid
from tuner.experiments.benchmarks.scheduler import seconds_alone, seconds_together, thread_counts
from tuner.experiments.frame.options import Options
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.zoo import GTX_1080TI, model
from tuner.laboratory.parallel import cores
from tuner.report import style
from tuner.report.series import Series, curve
from tuner.scheduling.analysis import best_batch
from tuner.scheduling.cluster import linear_latency

__all__ = ["Task", "ideal", "measure", "plot", "run"]

NAME = "symphony-fig11"
POLICY = "symphony"
IDEAL = "ideal"
SESSIONS, SLO = 20, 100  # ms
COUNTS = (16, 32, 64, 128, 256, 512, 1024)
QUICK_COUNTS = (16, 64)
SECONDS, QUICK_SECONDS = 5.0, 0.5
REQUESTS, QUICK_REQUESTS = 2_000_000, 20_000
"""Scheduled by every thread at each point."""
OF_SESSIONS = ((1, 100), (10, 100), (100, 100), (1000, 100))  # sessions, accelerators
OF_ACCELERATORS = ((10, 10), (10, 100), (10, 1000), (10, 10_000))
THREADS = "threads with 37 x 64 each"
BY_SESSIONS, BY_ACCELERATORS = "sessions (100 accelerators)", "accelerators (10 sessions)"
GOODPUT = "goodput"


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """One search of the goodput."""

    accelerators: int
    seconds: float
    seed: int


def run(options: Options) -> Result:
    """Measure the scheduler alone, one thing after the other; then search the goodput on all cores."""
    had: dict[int, float] = {}
    series = list(_alone(options, had))
    counts = QUICK_COUNTS if options.quick else COUNTS
    seconds = QUICK_SECONDS if options.quick else SECONDS
    tasks = [
        Task(accelerators=count, seconds=seconds, seed=seed)
        for count in counts
        for seed in range(options.seeds)
    ]
    rates = options.run_all(measure, tasks, "accelerators and seeds")
    found = {
        count: [rate for task, rate in zip(tasks, rates, strict=True) if task.accelerators == count]
        for count in counts
    }
    series.append(curve(POLICY, counts, list(found.values()), panel=GOODPUT))
    series.append(curve(IDEAL, counts, [[ideal(count)] for count in counts], panel=GOODPUT))
    return Result(
        experiment=NAME,
        seeds=options.seeds,
        configuration={"sessions": SESSIONS, "slo_ms": SLO, "seconds": seconds, "cores": cores()},
        rows=[*_speeds(series, had), *_goodputs(found)],
        series=series,
    )


def _alone(options: Options, had: dict[int, float]) -> Iterator[Series]:
    """The scheduler alone: requests/s; each point is repeated once for every seed.

    ``had`` is filled with the cores that each number of threads had; see :func:`seconds_together`.
    """
    requests = QUICK_REQUESTS if options.quick else REQUESTS
    scenario, threads = cluster("37 x 64", POLICY, requests), thread_counts()
    together: list[list[float]] = []
    for count in options.track(threads, "threads"):
        taken = [seconds_together(scenario, requests, count) for _ in range(options.seeds)]
        together.append([count * requests / passed for passed, _ in taken])
        had[count] = median(share for _, share in taken)
    yield curve(POLICY, threads, together, panel=THREADS)
    for panel, sizes, axis in ((BY_SESSIONS, OF_SESSIONS, 0), (BY_ACCELERATORS, OF_ACCELERATORS, 1)):
        speeds: list[list[float]] = []
        for size in options.track(sizes, panel):
            scenario = grid(*size, POLICY, requests)
            speeds.append([requests / seconds_alone(scenario, requests, 1) for _ in range(options.seeds)])
        yield curve(POLICY, [size[axis] for size in sizes], speeds, panel=panel)


def measure(task: Task) -> float:
    """Return the goodput, requests/s."""
    one = model("ResNet50", GTX_1080TI)
    session = Session(name=one.name, alpha_ms=one.alpha_ms, beta_ms=one.beta_ms, slo_ms=SLO, copies=SESSIONS)
    scenario = Scenario(
        policy=POLICY,
        accelerators=task.accelerators,
        rate=ideal(task.accelerators),
        sessions=(session,),
        seconds=task.seconds,
        warmup_seconds=0.5,
        seed=task.seed,
    )
    return goodput(scenario).rate


def ideal(accelerators: int) -> float:
    """Return the rate with perfectly even arrivals, requests/s.

    Equation 2 with several sessions: N accelerators execute batches of M sessions in turn, so a session's
    batches begin ``M l(b) / N`` after each other, and ``(1 + M/N) l(b) <= SLO``.
    """
    one = model("ResNet50", GTX_1080TI)
    latency = linear_latency(one.alpha_ms / 1e3, one.beta_ms / 1e3, SLO / 1e3)
    batch = best_batch(latency, SLO / 1e3 / (1 + SESSIONS / accelerators))
    return accelerators * batch / float(latency[batch])


def _speeds(series: list[Series], had: dict[int, float]) -> Iterator[Row]:
    for one in series:
        if one.panel == GOODPUT:
            continue
        for x, y, low, high in zip(one.x, one.y, one.low or one.y, one.high or one.y, strict=True):
            note = f"by the clock; had {had[int(x)]:.2f} of {cores()} cores" if one.panel == THREADS else ""
            name = f"alone, {one.panel}: {x:g}"
            yield Row(id=name, measured=y, low=low, high=high, unit="requests/s", note=note)


def _goodputs(found: dict[int, list[float]]) -> Iterator[Row]:
    for count, rates in found.items():
        note = f"{sorted(rates)[len(rates) // 2] / ideal(count):.1%} of the ideal"
        yield row(f"goodput, {count} accelerators", rates, unit="requests/s", note=note)


def plot(result: Result, folder: Path) -> list[Path]:
    """Draw three panels of the scheduler alone and one of the goodput."""
    figure, axes = style.figure(
        "The scheduler alone, and the goodput it gets out of ever more accelerators", rows=2, columns=2
    )
    for axis, panel in zip(axes.flat, (THREADS, BY_SESSIONS, BY_ACCELERATORS), strict=False):
        style.curves(axis, [_scaled(one, 1e6) for one in result.panel(panel)])
        axis.set(title="scheduler alone", xlabel=panel, ylabel="million requests/s")
        axis.set_ylim(0, 1.06 * axis.get_ylim()[1])
        if panel == THREADS:
            points = result.panel(panel)[0].x
            axis.set_xticks(points, [f"{x:g}" for x in points])
            axis.set_xlim(0.5, points[-1] + 0.5)
        else:
            axis.set_xscale("log")
    axis = axes.flat[3]
    reached, best = (_scaled(one, 1e3) for one in result.panel(GOODPUT))
    style.curves(axis, [reached])
    axis.plot(best.x, [float(y or 0) for y in best.y], color=style.INK, ls=":", lw=1.4, label=IDEAL)
    axis.set(title="20 sessions, SLO 100 ms", xlabel="accelerators", ylabel="goodput, thousand requests/s")
    axis.set(xscale="log", yscale="log")
    axis.set_xticks(reached.x, [f"{x:g}" for x in reached.x])
    axis.minorticks_off()
    style.legend(axis, loc="upper left")
    return [style.save(figure, folder, NAME)]


def _scaled(series: Series, unit: float) -> Series:
    """Return a curve in a larger unit."""
    scaled = {
        field: [None if value is None else value / unit for value in getattr(series, field)]
        for field in ("y", "low", "high")
    }
    return series.model_copy(update=scaled)

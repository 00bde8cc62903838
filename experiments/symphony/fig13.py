"""Symphony, Figure 13: what a slow or unsteady network costs.

Twenty equally popular models like ResNet50 on 32 accelerators. From the decision to the batch's start on its
accelerator passes a delay that is drawn for each batch: lognormal, its median that of the network, its tail
longer and longer. The scheduler allows for what 99 % of the draws stay below. The second run of each point
has that very allowance as a constant delay: what the two differ by is the work of the tail alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist, median

from tuner.cluster import Network, Scenario, Session
from tuner.cluster.goodput import goodput
from tuner.experiments.frame.options import Options
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.zoo import GTX_1080TI, model
from tuner.report import style
from tuner.report.series import Series, curve

__all__ = ["Task", "measure", "network", "plot", "run"]

NAME = "symphony-fig13"
SESSIONS, ACCELERATORS = 20, 32
SLOS = (20, 25, 50, 100)  # ms
RANGES = {  # name -> (median, 99 % quantiles), ms; the least quantile is the median: a constant delay
    "RDMA": (0.024, (0.024, 0.03, 0.05, 0.1, 0.2)),
    "TCP": (0.25, (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)),
}
DRAWN, CONSTANT = "drawn", "constant"
SECONDS, QUICK_SECONDS = 10.0, 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """One search of the goodput."""

    range: str
    slo_ms: float
    quantile_ms: float
    """99 % of the delays are shorter."""
    kind: str
    """``drawn``, or ``constant``: always the quantile."""
    seconds: float
    seed: int


def run(options: Options) -> Result:
    """Search the goodput for each SLO and delay."""
    slos = SLOS[::3] if options.quick else SLOS
    tasks = list(_tasks(options, slos))
    rates = options.run_all(measure, tasks, "delays and seeds")
    found: dict[tuple[str, float, float, str], list[float]] = {}
    for task, rate in zip(tasks, rates, strict=True):
        found.setdefault((task.range, task.slo_ms, task.quantile_ms, task.kind), []).append(rate)
    series: list[Series] = []
    for name, (_, quantiles) in RANGES.items():
        for slo in slos:
            for kind in (DRAWN, CONSTANT):
                values = [found[name, slo, quantile, kind] for quantile in quantiles]
                shares = _relative(values, found["RDMA", slo, RANGES["RDMA"][0], CONSTANT])
                series.append(curve(f"{slo} ms, {kind}", quantiles, shares, panel=name))
    return Result(
        experiment=NAME,
        seeds=options.seeds,
        configuration={"sessions": SESSIONS, "accelerators": ACCELERATORS, "seconds": tasks[0].seconds},
        rows=[one for slo in slos for one in _rows(found, slo)],
        series=series,
    )


def _tasks(options: Options, slos: tuple[int, ...]) -> Iterator[Task]:
    for name, (_, quantiles) in RANGES.items():
        for slo in slos:
            for quantile in quantiles:
                for kind in (DRAWN, CONSTANT):
                    for seed in range(options.seeds):
                        yield Task(
                            range=name,
                            slo_ms=slo,
                            quantile_ms=quantile,
                            kind=kind,
                            seconds=QUICK_SECONDS if options.quick else SECONDS,
                            seed=seed,
                        )


def network(task: Task) -> Network:
    """Return the delays of a task."""
    middle = RANGES[task.range][0]
    if task.kind == CONSTANT or task.quantile_ms == middle:
        return Network(control_ms=task.quantile_ms)
    sigma = math.log(task.quantile_ms / middle) / NormalDist().inv_cdf(0.99)
    return Network(control_ms=f"lognormal:{middle:g},{sigma!r}")


def measure(task: Task) -> float:
    """Return the goodput, requests/s."""
    one = model("ResNet50", GTX_1080TI)
    session = Session(
        name=one.name, alpha_ms=one.alpha_ms, beta_ms=one.beta_ms, slo_ms=task.slo_ms, copies=SESSIONS
    )
    scenario = Scenario(
        policy="symphony",
        accelerators=ACCELERATORS,
        rate=1000.0,
        sessions=(session,),
        network=network(task),
        seconds=task.seconds,
        warmup_seconds=0.5,
        seed=task.seed,
    )
    return goodput(scenario, tolerance=0.002).rate


def _relative(values: list[list[float]], base: list[float]) -> list[list[float]]:
    """Divide the rates of each seed by that seed's rate with the fastest steady network."""
    return [[rate / first for rate, first in zip(repeats, base, strict=True)] for repeats in values]


def _rows(found: dict[tuple[str, float, float, str], list[float]], slo: int) -> Iterator[Row]:
    """The goodput with the fastest network, and what is left of it with the longest tails of both ranges."""
    base = found["RDMA", slo, RANGES["RDMA"][0], CONSTANT]
    yield row(f"SLO {slo} ms, {RANGES['RDMA'][0] * 1e3:g} us, constant", base, unit="requests/s")
    for name, quantile in (("RDMA", 0.05), ("RDMA", 0.2), ("TCP", 1.0), ("TCP", 4.0), ("TCP", 8.0)):
        shares, still = (_relative([found[name, slo, quantile, kind]], base)[0] for kind in (DRAWN, CONSTANT))
        note = f"with this delay as a constant {median(still):.3f}"
        yield row(f"SLO {slo} ms, {name}, 99 % below {quantile:g} ms", shares, unit="of that", note=note)


def plot(result: Result, folder: Path) -> list[Path]:
    """Draw the share of the goodput that is left against the allowance, one panel for each range."""
    figure, axes = style.figure(
        "The tighter the SLO, the dearer the network's tail", columns=len(RANGES), sharey=True
    )
    for axis, name in zip(axes.flat, RANGES, strict=True):
        panel = result.panel(name)
        solid = [one for one in panel if one.name.endswith(DRAWN)]
        style.curves(axis, solid)
        for index, one in enumerate(one for one in panel if one.name.endswith(CONSTANT)):
            axis.plot(
                one.x, [float(y or 0) for y in one.y], color=style.look("", index).color, ls=":", lw=1.2
            )
        middle = RANGES[name][0]
        axis.set(title=f"{name}: median {middle:g} ms", xlabel="99 % of the delays are below, ms")
        axis.set(xscale="log", ylim=(0, 1.08))
        axis.set_xticks(solid[0].x, [f"{x:g}" for x in solid[0].x])
        axis.minorticks_off()
    axes.flat[0].set_ylabel("goodput, share of that at 24 us")
    style.legend(axes.flat[0], loc="lower left", title="dotted: constant", title_fontsize=8)
    return [style.save(figure, folder, NAME)]

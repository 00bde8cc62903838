"""Symphony, Figure 11: how many requests the scheduler can handle, and how goodput grows with accelerators.

On the left of the paper's figure is the scheduler alone: requests and accelerators are objects in the
process, nothing is sent or executed. It is measured with the code of ``tuner bench scheduler``: against
threads, each with a sub-cluster of its own, against sessions, and against accelerators. On the right is the
goodput of 20 equally popular models like ResNet50 with an SLO of 100 ms.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Any, NamedTuple

from tuner.cluster import Scenario
from tuner.cluster.goodput import goodput
from tuner.experiments.benchmarks.scenarios import cluster, grid
from tuner.experiments.benchmarks.scheduler import seconds_alone, seconds_together, thread_counts
from tuner.experiments.frame.experiment import Answers, Experiment, Scaled, experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.zoo import GTX_1080TI, model
from tuner.laboratory.parallel import cores
from tuner.profile import best_batch
from tuner.report import style
from tuner.report.series import Series, curve

__all__ = ["SchedulerScale", "ideal", "search"]

MODEL = model("ResNet50", GTX_1080TI)
POLICY = "symphony"
IDEAL = "ideal"
SESSIONS, SLO = 20, 100  # ms
OF_SESSIONS = (1, 10, 100, 1000)  # on 100 accelerators
OF_ACCELERATORS = (10, 100, 1000, 10_000)  # with 10 sessions
THREADS = "threads with 37 x 64 each"
BY_SESSIONS, BY_ACCELERATORS = "sessions (100 accelerators)", "accelerators (10 sessions)"
GOODPUT = "goodput"


class SchedulerPoint(NamedTuple):
    """A point of one of the panels."""

    panel: str
    number: int
    """Of what the panel goes over: threads, sessions or accelerators."""


class RequestRate(NamedTuple):
    """What was measured there."""

    rate: float
    """Requests/s; in the last panel the goodput."""
    had: float = 1.0
    """Cores that the threads had, where there are several."""


@experiment(
    name="symphony-fig11",
    title="Requests/s of the scheduler alone; goodput against the number of accelerators",
    paper="Symphony",
    minutes=3,
    by_clock=("alone, *", "threads *", "sessions *", "accelerators *"),
)
class SchedulerScale(Experiment[SchedulerPoint, RequestRate]):
    """Measures the scheduler alone, point after point; then searches the goodputs on all cores."""

    counts = Scaled((16, 32, 64, 128, 256, 512, 1024), quick=(16, 64))
    """Accelerators of the goodputs."""
    seconds = Scaled(5.0, quick=0.5)
    requests = Scaled(2_000_000, quick=20_000)
    """Scheduled by every thread at each point."""

    def tasks(self) -> list[SchedulerPoint]:
        panels = {
            THREADS: thread_counts(),
            BY_SESSIONS: OF_SESSIONS,
            BY_ACCELERATORS: OF_ACCELERATORS,
            GOODPUT: self.counts,
        }
        return [SchedulerPoint(panel, count) for panel, counts in panels.items() for count in counts]

    def alone(self, task: SchedulerPoint) -> bool:
        return task.panel != GOODPUT

    def measure(self, task: SchedulerPoint, seed: int) -> RequestRate:
        panel, count = task
        if panel == GOODPUT:
            return RequestRate(search(count, self.seconds, seed))
        if panel == THREADS:
            passed, had = seconds_together(cluster("37 x 64", POLICY, self.requests), self.requests, count)
            return RequestRate(count * self.requests / passed, had)
        sessions, accelerators = (count, 100) if panel == BY_SESSIONS else (10, count)
        scenario = grid(sessions, accelerators, POLICY, self.requests)
        return RequestRate(self.requests / seconds_alone(scenario, self.requests, 1))

    def rows(self, found: Answers[SchedulerPoint, RequestRate]) -> Iterator[Row]:
        for (panel, count), answers in found.items():
            rates = [answer.rate for answer in answers]
            if panel == GOODPUT:
                note = f"{sorted(rates)[len(rates) // 2] / ideal(count):.1%} of the ideal"
                yield row(f"goodput, {count} accelerators", rates, unit="requests/s", note=note)
                continue
            had = median(answer.had for answer in answers)
            note = f"by the clock; had {had:.2f} of {cores()} cores" if panel == THREADS else ""
            yield row(f"alone, {panel}: {count:g}", rates, unit="requests/s", note=note)

    def series(self, found: Answers[SchedulerPoint, RequestRate]) -> Iterator[Series]:
        for panel in dict.fromkeys(task.panel for task in found):
            points = {task.number: answers for task, answers in found.items() if task.panel == panel}
            rates = [[answer.rate for answer in answers] for answers in points.values()]
            yield curve(POLICY, list(points), rates, panel=panel)
        yield curve(IDEAL, self.counts, [[ideal(count)] for count in self.counts], panel=GOODPUT)

    def configuration(self) -> dict[str, Any]:
        return {"sessions": SESSIONS, "slo_ms": SLO, "seconds": self.seconds, "cores": cores()}

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
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
        axis.set(title="20 sessions, SLO 100 ms", xlabel="accelerators")
        axis.set(ylabel="goodput, thousand requests/s", xscale="log", yscale="log")
        axis.set_xticks(reached.x, [f"{x:g}" for x in reached.x])
        axis.minorticks_off()
        style.legend(axis, loc="upper left")
        return [style.Drawing(figure)]


def search(accelerators: int, seconds: float, seed: int) -> float:
    """Return the goodput, requests/s."""
    scenario = Scenario(
        policy=POLICY,
        accelerators=accelerators,
        rate=ideal(accelerators),
        sessions=(MODEL.session(SLO, copies=SESSIONS),),
        seconds=seconds,
        warmup_seconds=0.5,
        seed=seed,
    )
    return goodput(scenario).rate


def ideal(accelerators: int) -> float:
    """Return the rate with perfectly even arrivals, requests/s.

    Equation 2 with several sessions: N accelerators execute batches of M sessions in turn, so a session's
    batches begin ``M l(b) / N`` after each other, and ``(1 + M/N) l(b) <= SLO``.
    """
    latency = MODEL.latency(SLO)
    batch = best_batch(latency, SLO / 1e3 / (1 + SESSIONS / accelerators))
    return accelerators * batch / float(latency[batch])


def _scaled(series: Series, unit: float) -> Series:
    """Return a curve in a larger unit."""
    scaled = {
        field: [None if value is None else value / unit for value in getattr(series, field)]
        for field in ("y", "low", "high")
    }
    return series.model_copy(update=scaled)

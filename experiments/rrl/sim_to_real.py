"""From simulation to a real server: what a calibrated model predicts, and what a policy trained in it does.

A minute of watching the embedded Triton gives a server model. It predicts the latency of configurations that
were not seen, under loads that were not seen; so does the neural estimator, from the same windows. A policy
trained in the model then meets the server, beside rivals that begin with nothing, when a load comes that the
server's own configuration cannot bear. All loads are shares of what one instance bears without batching, and
the SLO is a multiple of how long it takes for a request: machines are fast and slow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from tuner.envs.simulator.server import ServerModel
from tuner.experiments.frame.experiment import Answers, Scaled, SequentialExperiment, experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.live.testbed import distinct, measure_in_turns, objective, triton
from tuner.experiments.live.triton_convergence import windows_to_converge
from tuner.experiments.rrl.live_learning import LiveWindow, learn_live
from tuner.experiments.rrl.prediction import (
    Points,
    PredictedPoint,
    error_rows,
    estimate,
    estimated_rows,
    measure_points,
    predict,
    taught,
)
from tuner.knobs import Configuration, KnobSpace
from tuner.laboratory.calibration import measure_server_model
from tuner.laboratory.figures import draw_time
from tuner.measurement import STATISTICS, Measurement
from tuner.profiler.attachment import Attachment
from tuner.report import style
from tuner.report.series import Series, curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from tuner.agents.agent import Agent

__all__ = ["SimToReal", "StudyLengths"]

PROBES, PROBING = 10.0, 5.0
"""Rate under which the time of an execution is measured first, requests/s, and for how long, s."""
LIGHT, CALIBRATED, FEWER, COMING = 0.6, 1.25, 0.9, 1.45
"""Loads, over what one instance bears without batching: one that the server bears as it is, the other that is
watched, a third at which predictions are checked on every third configuration, the one that comes."""
SLACK = 7.0
"""The SLO over the time of an execution."""
GRIDS: dict[str, tuple[float, ...]] = {
    "max_batch_size": (1, 2, 4, 8, 16),
    "max_queue_delay": (0.0, 0.002, 0.005, 0.01),
    "instances": (1, 2),
}
TRAINED = "rrl trained in simulation"
RIVALS = ("rrl", "hill_climb", "tpe")
NEAR, WINDOWS = 1.10, 10
"""The target: within this factor of the best, after this many live windows."""
TICKS = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
"""Where a logarithmic axis has ticks in each decade."""
MOST_OBSERVED = 60.0
"""How long the server may be watched for the calibration, s."""
ESTIMATOR = "the neural estimator"


@dataclass(frozen=True, kw_only=True)
class StudyLengths:
    """The lengths and numbers of all measurements."""

    calibration: float = 3.3
    """Length of a window of the calibration, s."""
    window: float = 4.0
    """Length of a live window, s."""
    sweep: float = 3.5
    """Length of a window of the sweep, s."""
    sweeps: int = 3
    """Rounds of it."""
    windows: int = WINDOWS
    turns: int = 3
    """Rounds in which what was settled on is compared with the best of the sweep."""
    training: int = 400
    """Simulated windows, the default of ``tuner train``."""


QUICK = StudyLengths(calibration=2.0, window=2.0, sweep=1.5, sweeps=1, windows=3, turns=1, training=40)


class Loads(NamedTuple):
    """What the server is asked to do, requests/s, and how soon, s."""

    execution: float
    """How long it takes for a request by itself, s."""
    light: float
    calibrated: float
    fewer: float
    coming: float
    slo: float

    @classmethod
    def of(cls, execution: float) -> Loads:
        """Return the loads of a server that takes so long for a request, s."""
        light, calibrated, fewer, coming = (one / execution for one in (LIGHT, CALIBRATED, FEWER, COMING))
        return cls(execution, light, calibrated, fewer, coming, SLACK * execution)


class Learned(NamedTuple):
    """The run of one agent."""

    windows: list[LiveWindow]
    final: Configuration
    """What it ends with."""


class Study(NamedTuple):
    """Everything that the study has measured."""

    loads: Loads
    observed: float
    """How long the server was watched for the calibration, s."""
    calibrated: int
    """Windows of the calibration."""
    model: ServerModel
    space: KnobSpace
    swept: Points
    points: list[PredictedPoint]
    """Predictions for configurations and loads that the calibration has not seen."""
    estimated: list[PredictedPoint]
    """The same by the neural estimator, of the p95 alone."""
    learned: dict[str, list[Learned]]
    ratios: dict[Configuration, float]
    """p95 over that of the sweep's best."""


@experiment(
    name="sim-to-real",
    title="From simulation to a live Triton: predicted latency, and a policy trained in simulation",
    paper="RRL",
    minutes=18,
    live=True,
    foreign_limit=True,
)
class SimToReal(SequentialExperiment[Study]):
    """Calibrates, predicts, trains and tunes on the embedded Triton.

    Ctrl-C ends the tuning: the seeds that are complete are compared, which takes a minute more.
    """

    lengths = Scaled(StudyLengths(), quick=QUICK)

    def bench(self, rate: float, seed: int) -> AbstractContextManager[Attachment]:
        """Start a server under a load, requests/s."""
        quick, limit = self.options.quick, self.options.foreign_limit
        return triton(rate, seed=seed, quick=quick, grids=None if quick else GRIDS, foreign_limit=limit)

    def proceed(self) -> Study:
        with self.bench(PROBES, 0) as attachment:
            loads = Loads.of(attachment.profiler.measure(PROBING).compute_mean)
        self.report(f"{1e3 * loads.execution:.1f} ms a request, so {loads.coming:.0f} requests/s will come")
        with self.bench(loads.light, 0) as attachment:
            begin = attachment.clock.now()
            model, calibrated = measure_server_model(
                attachment, self.lengths.calibration, rates=(loads.light, loads.calibrated)
            )
            observed = attachment.clock.now() - begin
            self.report(f"calibrated in {observed:.0f} s with {len(calibrated)} windows: {model}")
            measured = self._measure(attachment, loads)
            space, goal = attachment.space, objective(attachment, slo=loads.slo)
        known = {space.nearest(m.configuration) for m in calibrated}
        unseen = {
            rate: {c: windows for c, windows in points.items() if c not in known}
            for rate, points in measured.items()
        }
        points = [one for rate, here in unseen.items() for one in predict(model, rate, here)]
        estimator = taught(space, goal, calibrated)
        estimated = [one for rate, here in unseen.items() for one in estimate(estimator, goal, rate, here)]
        estimator.close()
        learned = self._learn_all(model, space, loads)
        swept = measured[loads.coming]
        ratios = self._p95_over_best(swept, learned, loads)
        return Study(
            loads, observed, len(calibrated), model, space, swept, points, estimated, learned, ratios
        )

    def rows(self, found: Answers[None, Study]) -> Iterator[Row]:
        (study,) = found[None]
        yield Row(
            id="seconds of observation",
            published=MOST_OBSERVED,
            measured=round(study.observed, 1),
            unit="s",
            note=f"{study.calibrated} windows; target: at most",
        )
        yield from _agent_rows(study.learned, study.ratios)
        yield from error_rows(study.points)
        yield from estimated_rows(ESTIMATOR, study.estimated)

    def series(self, found: Answers[None, Study]) -> list[Series]:
        (study,) = found[None]
        return [*_scatter(study.points), *_over_time(study.learned)]

    def configuration(self) -> dict[str, Any]:
        return {
            "calibrated_at": [LIGHT, CALIBRATED],
            "checked_at": [FEWER, COMING],
            "slo over an execution": SLACK,
            "near": NEAR,
            "plan": asdict(self.lengths),
        }

    def details(self, found: Answers[None, Study]) -> dict[str, Any]:
        (study,) = found[None]
        return {
            "knobs": study.space.to_json(),
            "loads": {name: round(value, 5) for name, value in study.loads._asdict().items()},
            "server": study.model.to_json(),
            "points": [point.to_json() for point in study.points],
            "estimated": [point.to_json() for point in study.estimated],
            "windows": {
                name: [[w.to_json() for w in one.windows] for one in runs]
                for name, runs in study.learned.items()
            },
            "p95 over the best": {study.space.format(c): round(r, 3) for c, r in study.ratios.items()},
            "foreign cores": _foreign_cores(study.swept),
        }

    def _measure(self, attachment: Attachment, loads: Loads) -> dict[float, Points]:
        """Sweep the grid under the load that will come, and a part of it under another one."""
        grid = distinct(attachment)
        return {
            rate: measure_points(
                attachment,
                rate,
                configurations,
                seconds=self.lengths.sweep,
                rounds=self.lengths.sweeps,
                seed=0,
                report=self.report,
            )
            for rate, configurations in ((loads.fewer, grid[::3]), (loads.coming, grid))
        }

    def _learn_all(self, model: ServerModel, space: KnobSpace, loads: Loads) -> dict[str, list[Learned]]:
        """Let the trained policy and its rivals meet the load, each on a server of its own."""
        learned: dict[str, list[Learned]] = {name: [] for name in (TRAINED, *RIVALS)}
        for seed in range(self.options.seeds):
            try:
                runs = {name: self._learn(name, model, space, loads, seed) for name in learned}
            except KeyboardInterrupt:
                self._stop_after(seed)
                break
            for name, one in runs.items():
                learned[name].append(one)
        return learned

    def _learn(self, name: str, model: ServerModel, space: KnobSpace, loads: Loads, seed: int) -> Learned:
        """Let an agent of that name meet the load."""
        agent = (
            trained(model, space, loads, self.lengths.training, seed)
            if name == TRAINED
            else _cold(name, space, seed)
        )
        with closing(agent), self.bench(loads.light, seed) as attachment:
            windows = learn_live(
                attachment,
                agent,
                objective(attachment, slo=loads.slo),
                rate=loads.coming,
                windows=self.lengths.windows,
                seconds=self.lengths.window,
            )
        for number, window in enumerate(windows, 1):
            self.report(
                f"{name}  {number}/{self.lengths.windows}  {space.format(window.configuration)}  "
                f"p95 {1e3 * window.p95:.1f} ms  best {space.format(window.best)}"
            )
        return Learned(windows, windows[-1].best)

    def _p95_over_best(
        self, swept: Points, learned: dict[str, list[Learned]], loads: Loads
    ) -> dict[Configuration, float]:
        """Return the p95 of every configuration over that of the sweep's best.

        The best of many noisy windows is partly luck, and the machine's speed drifts: what agents ended with
        is measured once more in turns with the best of the sweep, and compared round by round.
        """
        p95 = {configuration: median(_p95(windows)) for configuration, windows in swept.items()}
        best = min(p95, key=p95.__getitem__)
        finals = [one.final for runs in learned.values() for one in runs if p95[one.final] < 2 * p95[best]]
        with self.bench(loads.light, 0) as attachment:
            attachment.set_rate(loads.coming)
            again = measure_in_turns(
                attachment,
                list(dict.fromkeys([best, *finals])),
                seconds=self.lengths.window,
                rounds=self.lengths.turns,
            )
        for configuration, values in again.items():
            self.report(f"in turns: {configuration}: {[round(1e3 * value, 1) for value in values]} ms")
        ratios = {configuration: value / p95[best] for configuration, value in p95.items()}
        return ratios | {
            configuration: median(value / of_best for value, of_best in zip(values, again[best], strict=True))
            for configuration, values in again.items()
        }

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw p95 predicted against measured and the windows of every agent; then the other statistics."""
        slo, coming = 1e3 * result.details["loads"]["slo"], result.details["loads"]["coming"]
        figure, axes = style.figure("From simulation to the embedded Triton", columns=2, size=(10.5, 4.4))
        _draw_scatter(axes[0, 0], result, "p95")
        axis = axes[0, 1]
        draw_time(axis, result.panel("windows"), "p95, ms", log=True)
        axis.axhline(slo, color=style.MUTED, lw=1.0, ls="--")
        axis.text(0.99, slo * 1.08, f"SLO {slo:.0f} ms", fontsize=8, color=style.MUTED, ha="right",
                  transform=axis.get_yaxis_transform())  # fmt: skip
        axis.set(xlabel="live window", title=f"{coming:.0f} requests/s come")
        style.legend(axis)
        others, axes = style.figure("Predicted against measured, other statistics", columns=3, size=(12, 4.2))
        for axis, statistic in zip(axes[0], ("mean", "p50", "p99"), strict=True):
            _draw_scatter(axis, result, statistic)
        return [style.Drawing(figure), style.Drawing(others, "statistics")]


def trained(model: ServerModel, space: KnobSpace, loads: Loads, windows: int, seed: int) -> Agent:
    """Train as ``tuner train --server FILE`` does, and read the policy as ``tuner run --policy`` does."""
    from tuner.agents.catalogue import load_agent
    from tuner.laboratory.agent_run import RunSpec
    from tuner.laboratory.training import train

    spec = RunSpec(
        env="tuner/TritonCPU-v0",
        arguments={
            "server": model.to_json(),
            "slo": f"p95={1e3 * loads.slo:.3f}ms",
            "grids": {knob.name: list(knob.grid) for knob in space.knobs},
        },
        rates=(loads.coming,),
        seed=seed,
        windows=windows,
        exact=False,
    )
    with TemporaryDirectory() as folder:
        train(spec, Path(folder)).agent.close()
        return load_agent(Path(folder), space, seed=seed)


def _cold(name: str, space: KnobSpace, seed: int) -> Agent:
    from tuner.agents.catalogue import make_agent

    return make_agent(name, space, seed=seed, start=space.encode(space.default))


def _p95(windows: Sequence[Measurement]) -> list[float]:
    return [m.latency_p95 for m in ([m for m in windows if not m.disturbed] or windows)]


def _foreign_cores(swept: Points) -> dict[str, float]:
    """Return how many cores other processes used during the sweep: median and most."""
    cores = [m.foreign_cpu for windows in swept.values() for m in windows]
    return {"median": round(median(cores), 3), "most": round(max(cores), 3)}


def _agent_rows(learned: dict[str, list[Learned]], ratios: dict[Configuration, float]) -> list[Row]:
    """Return, by agent: windows above the SLO, windows until near the best, and the final p95."""
    rows = []
    for name, runs in learned.items():
        ours = name == TRAINED
        above = [float(sum(not window.kept for window in one.windows)) for one in runs]
        near = [windows_to_converge([ratios[w.best] for w in one.windows], near=NEAR) for one in runs]
        ends = [ratios[one.final] for one in runs]
        label = name if ours else f"{name} cold"
        kind = "windows"
        rows += [
            row(f"{label}: windows above the SLO", above, unit=kind, published=0.0 if ours else None),
            row(f"{label}: windows to within 10 %", near, unit=kind, published=WINDOWS if ours else None),
            row(f"{label}: p95 at the end, over the best", ends, published=NEAR if ours else None),
        ]
    return rows


def _scatter(points: Sequence[PredictedPoint]) -> list[Series]:
    steady = [point for point in points if not point.overloaded]
    return [
        Series(
            name=f"{rate:.0f} requests/s",
            panel=statistic,
            x=[1e3 * p.measured[statistic] for p in steady if p.rate == rate],
            y=[1e3 * p.predicted[statistic] for p in steady if p.rate == rate],
        )
        for statistic in STATISTICS
        for rate in sorted({point.rate for point in steady})
    ]


def _over_time(learned: dict[str, list[Learned]]) -> list[Series]:
    return [
        curve(
            name if name == TRAINED else f"{name} cold",
            range(1, 1 + len(runs[0].windows)),
            [
                [1e3 * window.p95 for window in windows]
                for windows in zip(*(r.windows for r in runs), strict=True)
            ],
            panel="windows",
        )
        for name, runs in learned.items()
    ]


def _draw_scatter(axis: Axes, result: Result, statistic: str) -> None:
    """Draw points beside the diagonal, and where they are off by 15 %."""
    from matplotlib.ticker import FormatStrFormatter, LogLocator, NullLocator

    panel = result.panel(statistic)
    values = [v for series in panel for v in (*series.x, *series.y) if v is not None]
    ends = [0.9 * min(values), 1.1 * max(values)]
    axis.plot(ends, ends, color=style.MUTED, lw=1.0)
    axis.fill_between(
        ends, [0.85 * v for v in ends], [1.15 * v for v in ends], color=style.MUTED, alpha=0.15, lw=0
    )
    for index, series in enumerate(panel):
        color, marker = style.look(series.name, index)
        axis.scatter(series.x, style.floats(series.y), color=color, marker=marker, s=22, label=series.name)
    axis.set(
        xscale="log", yscale="log", xlim=ends, ylim=ends,
        xlabel="measured, ms", ylabel="predicted, ms", title=f"{statistic}; 15 % off in grey",
    )  # fmt: skip
    for one in (axis.xaxis, axis.yaxis):
        one.set_major_locator(LogLocator(subs=TICKS))
        one.set_major_formatter(FormatStrFormatter("%g"))
        one.set_minor_locator(NullLocator())
    style.legend(axis, loc="upper left")

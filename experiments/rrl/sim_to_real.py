"""From simulation to a real server: what a calibrated model predicts, and what a policy trained in it does.

A few minutes of watching the embedded Triton give a server model. It predicts the latency of configurations
that were not seen, under loads that were not seen. A policy trained in it then meets the server, beside
rivals that begin with nothing, when a load comes that the server's own configuration cannot bear.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import asdict, dataclass
from functools import partial
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
    measure_points,
    predict,
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

LIGHT, RATE = 140.0, 350.0
"""A load that the server bears as it is, and the one that comes, requests/s."""
CALIBRATED_AT = (LIGHT, 300.0)
SEEN_FEWER = 220.0
"""A third load at which predictions are checked, on every third configuration."""
GRIDS: dict[str, tuple[float, ...]] = {
    "max_batch_size": (1, 2, 4, 8, 16),
    "max_queue_delay": (0.0, 0.002, 0.005, 0.01),
    "instances": (1, 2),
}
SLO_MS = 30.0
TRAINED = "rrl trained in simulation"
RIVALS = ("rrl", "hill_climb", "tpe")
NEAR, WINDOWS = 1.10, 10
"""The target: within this factor of the best, after this many live windows."""
TICKS = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
"""Where a logarithmic axis has ticks in each decade."""
MOST_OBSERVED = 180.0
"""How long the server may be watched for the calibration, s."""


@dataclass(frozen=True, kw_only=True)
class StudyLengths:
    """The lengths and numbers of all measurements."""

    calibration: float = 6.0
    """Length of a window of the calibration, s."""
    calibrations: int = 2
    """Rounds of it."""
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


QUICK = StudyLengths(
    calibration=2.0, calibrations=1, window=2.0, sweep=1.5, sweeps=1, windows=3, turns=1, training=40
)


class Learned(NamedTuple):
    """The run of one agent."""

    windows: list[LiveWindow]
    final: Configuration
    """What it ends with."""


class Study(NamedTuple):
    """Everything that the study has measured."""

    observed: float
    """How long the server was watched for the calibration, s."""
    calibrated: int
    """Windows of the calibration."""
    model: ServerModel
    space: KnobSpace
    swept: Points
    points: list[PredictedPoint]
    """Predictions for configurations and loads that the calibration has not seen."""
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
        with self.bench(LIGHT, 0) as attachment:
            begin = attachment.clock.now()
            model, calibrated = measure_server_model(
                attachment,
                self.lengths.calibration,
                rates=CALIBRATED_AT,
                rounds=self.lengths.calibrations,
            )
            observed = attachment.clock.now() - begin
            self.report(f"calibrated in {observed:.0f} s with {len(calibrated)} windows: {model}")
            known = {attachment.space.nearest(m.configuration) for m in calibrated}
            swept, points = self._measure_and_predict(attachment, model, known)
            space = attachment.space
        learned = self._learn_all(model, space)
        ratios = self._p95_over_best(swept, learned)
        return Study(observed, len(calibrated), model, space, swept, points, learned, ratios)

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

    def series(self, found: Answers[None, Study]) -> list[Series]:
        (study,) = found[None]
        return [*_scatter(study.points), *_over_time(study.learned)]

    def configuration(self) -> dict[str, Any]:
        return {
            "calibrated_at": list(CALIBRATED_AT),
            "checked_at": [SEEN_FEWER, RATE],
            "slo_ms": SLO_MS,
            "near": NEAR,
            "plan": asdict(self.lengths),
        }

    def details(self, found: Answers[None, Study]) -> dict[str, Any]:
        (study,) = found[None]
        return {
            "knobs": study.space.to_json(),
            "server": study.model.to_json(),
            "points": [point.to_json() for point in study.points],
            "windows": {
                name: [[w.to_json() for w in one.windows] for one in runs]
                for name, runs in study.learned.items()
            },
            "p95 over the best": {study.space.format(c): round(r, 3) for c, r in study.ratios.items()},
            "foreign cores": _foreign_cores(study.swept),
        }

    def _measure_and_predict(
        self, attachment: Attachment, model: ServerModel, known: set[Configuration]
    ) -> tuple[Points, list[PredictedPoint]]:
        """Sweep the grid under the load that will come, and a part of it under another; predict both.

        Returns:
            The sweep, and the points that the calibration has not seen.
        """
        grid = distinct(attachment)
        measure = partial(
            measure_points,
            attachment,
            seconds=self.lengths.sweep,
            rounds=self.lengths.sweeps,
            seed=0,
            report=self.report,
        )
        unseen = [c for c in grid if c not in known]
        fewer = measure(SEEN_FEWER, unseen[::3])
        swept = measure(RATE, grid)
        checked = {c: windows for c, windows in swept.items() if c not in known}
        return swept, [*predict(model, SEEN_FEWER, fewer), *predict(model, RATE, checked)]

    def _learn_all(self, model: ServerModel, space: KnobSpace) -> dict[str, list[Learned]]:
        """Let the trained policy and its rivals meet the load, each on a server of its own."""
        learned: dict[str, list[Learned]] = {name: [] for name in (TRAINED, *RIVALS)}
        for seed in range(self.options.seeds):
            try:
                runs = {name: self._learn(name, model, space, seed) for name in learned}
            except KeyboardInterrupt:
                self._stop_after(seed)
                break
            for name, one in runs.items():
                learned[name].append(one)
        return learned

    def _learn(self, name: str, model: ServerModel, space: KnobSpace, seed: int) -> Learned:
        """Let an agent of that name meet the load."""
        agent = (
            trained(model, space, self.lengths.training, seed)
            if name == TRAINED
            else _cold(name, space, seed)
        )
        with closing(agent), self.bench(LIGHT, seed) as attachment:
            windows = learn_live(
                attachment,
                agent,
                objective(attachment, slo=SLO_MS / 1e3),
                rate=RATE,
                windows=self.lengths.windows,
                seconds=self.lengths.window,
            )
        for number, window in enumerate(windows, 1):
            self.report(
                f"{name}  {number}/{self.lengths.windows}  {space.format(window.configuration)}  "
                f"p95 {1e3 * window.p95:.1f} ms  best {space.format(window.best)}"
            )
        return Learned(windows, windows[-1].best)

    def _p95_over_best(self, swept: Points, learned: dict[str, list[Learned]]) -> dict[Configuration, float]:
        """Return the p95 of every configuration over that of the sweep's best.

        The best of many noisy windows is partly luck, and the machine's speed drifts: what agents ended with
        is measured once more in turns with the best of the sweep, and compared round by round.
        """
        p95 = {configuration: median(_p95(windows)) for configuration, windows in swept.items()}
        best = min(p95, key=p95.__getitem__)
        finals = [one.final for runs in learned.values() for one in runs if p95[one.final] < 2 * p95[best]]
        with self.bench(LIGHT, 0) as attachment:
            attachment.set_rate(RATE)
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
        figure, axes = style.figure("From simulation to the embedded Triton", columns=2, size=(10.5, 4.4))
        _draw_scatter(axes[0, 0], result, "p95")
        axis = axes[0, 1]
        draw_time(axis, result.panel("windows"), "p95, ms", log=True)
        axis.axhline(SLO_MS, color=style.MUTED, lw=1.0, ls="--")
        axis.text(0.99, SLO_MS * 1.08, f"SLO {SLO_MS:g} ms", fontsize=8, color=style.MUTED, ha="right",
                  transform=axis.get_yaxis_transform())  # fmt: skip
        axis.set(xlabel="live window", title=f"{RATE:g} requests/s come")
        style.legend(axis)
        others, axes = style.figure("Predicted against measured, other statistics", columns=3, size=(12, 4.2))
        for axis, statistic in zip(axes[0], ("mean", "p50", "p99"), strict=True):
            _draw_scatter(axis, result, statistic)
        return [style.Drawing(figure), style.Drawing(others, "statistics")]


def trained(model: ServerModel, space: KnobSpace, windows: int, seed: int) -> Agent:
    """Train as ``tuner train --server FILE`` does, and read the policy as ``tuner run --policy`` does."""
    from tuner.agents.catalogue import load_agent
    from tuner.laboratory.agent_run import RunSpec
    from tuner.laboratory.training import train

    spec = RunSpec(
        env="tuner/TritonCPU-v0",
        arguments={
            "server": model.to_json(),
            "slo": f"p95={SLO_MS:g}ms",
            "grids": {knob.name: list(knob.grid) for knob in space.knobs},
        },
        rates=(RATE,),
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
            name=f"{rate:g} requests/s",
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

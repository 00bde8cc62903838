"""Windows until RRL is within 15 % of the sweep's best: cold, and warm from simulation."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from statistics import median
from typing import Any, NamedTuple

from tuner.agents.rrl import RRL
from tuner.control import WATCHED, WindowRecord
from tuner.experiments.frame.experiment import Answers, Scaled, SequentialExperiment, experiment
from tuner.experiments.frame.result import Row, row
from tuner.experiments.live.testbed import RATES, drive, measure_in_turns, objective, triton
from tuner.experiments.live.triton_sweep import check_sweeps, load_sweep
from tuner.knobs import Configuration
from tuner.laboratory.calibration import measure_server_model, train_in_simulation
from tuner.profiler.attachment import Attachment

__all__ = ["TritonConvergence", "windows_to_converge"]

NEAR = 1.15
"""Within this factor of the best p95 counts as found."""
COLD_WINDOWS, WARM_WINDOWS = 24, 10
WINDOW = 5.0
SETTLED, ROUNDS = 3, 5
"""For how many windows a configuration must have been the incumbent to be measured against the best of the
sweep; in how many rounds."""

Traces = dict[str, dict[float, list[Configuration]]]
"""Run -> load -> per window the configuration that the loop would leave the server with."""


class Convergence(NamedTuple):
    """How the loop came near the best, and all that was seen of it."""

    found: dict[str, list[float]]
    """The values of each row."""
    details: dict[str, Any]


@experiment(
    name="triton-convergence",
    title="Windows until RRL is within 15 % of the sweep's best, cold and warm",
    minutes=32,
    live=True,
    foreign_limit=True,
)
class TritonConvergence(SequentialExperiment[Convergence]):
    """Runs the control loop cold and warm on fresh servers, and judges where it went.

    Ctrl-C ends the tuning: the seeds that are complete are judged, which takes some minutes more.
    """

    cold = Scaled(COLD_WINDOWS, quick=4)
    warm = Scaled(WARM_WINDOWS, quick=4)
    check = Scaled(6.0, quick=2.0)
    """Length of a window in turns, s."""
    rounds = Scaled(ROUNDS, quick=1)

    def prepare(self) -> None:
        """End at once where there is nothing to judge by."""
        check_sweeps(self.options.folder, quick=self.options.quick)

    def proceed(self) -> Convergence:
        traces: Traces = {}
        windows: dict[str, list[dict[str, Any]]] = {}
        for seed in range(self.options.seeds):
            try:
                tuned, logs = self._tune_both(seed)
            except KeyboardInterrupt:
                self._stop_after(seed)
                break
            traces |= tuned
            windows |= logs
        found, details = self._judge(traces)
        return Convergence(found, details | {"windows": windows})

    def rows(self, found: Answers[None, Convergence]) -> Iterator[Row]:
        limits = {"cold": 40.0, "warm": 10.0}
        (convergence,) = found[None]
        for name, values in sorted(convergence.found.items()):
            if name.endswith("best"):
                yield row(name, values, unit="", published=NEAR)
            else:
                yield row(name, values, unit="windows", published=limits[name.split()[0]])

    def details(self, found: Answers[None, Convergence]) -> dict[str, Any]:
        return found[None][0].details

    def configuration(self) -> dict[str, Any]:
        return {
            "rates": list(RATES),
            "window": WINDOW,
            "near": NEAR,
            "slo_ms": 30.0,
            "windows_cold": COLD_WINDOWS,
            "windows_warm": WARM_WINDOWS,
            "rounds": ROUNDS,
        }

    def _tune_both(self, seed: int) -> tuple[Traces, dict[str, list[dict[str, Any]]]]:
        """Tune cold and warm with one seed; return the traces and the windows of both."""
        traces: Traces = {}
        windows: dict[str, list[dict[str, Any]]] = {}
        for kind, count in (("cold", self.cold), ("warm", self.warm)):
            with self._server(RATES[0], seed) as attachment:
                agent = (
                    _trained(attachment, seed)
                    if kind == "warm"
                    else RRL(attachment.space, objective=objective(attachment), seed=seed)
                )
                name = f"{kind} seed {seed}"
                log = windows[name] = []
                traces[name] = self._tune(attachment, agent, count, name, log=log)
                agent.close()
        return traces, windows

    def _judge(self, traces: Traces) -> tuple[dict[str, list[float]], dict[str, Any]]:
        """Count windows until what the loop would leave behind is near the best.

        The machine's speed drifts by tens of per cent within minutes, so what the loop settled on is measured
        once more in turns with the best of the sweep, and compared round by round; what it held only in
        passing is judged by the sweep.
        """
        found: dict[str, list[float]] = {}
        details: dict[str, Any] = {}
        for rate in RATES:
            ratios_of = self._ratios(rate, traces, details)
            for name, trace in traces.items():
                ratios = [ratios_of[c] for c in trace[rate]]
                label = f"{name.split()[0]} at {rate:g} r/s"
                first = next((n for n, ratio in enumerate(ratios, 1) if ratio <= NEAR), math.inf)
                found.setdefault(f"{label}: first found", []).append(float(first))
                found.setdefault(f"{label}: found and kept", []).append(windows_to_converge(ratios))
                found.setdefault(f"{label}: p95 at the end, over the best", []).append(ratios[-1])
                details[f"{name} at {rate:g} r/s"] = [round(ratio, 3) for ratio in ratios]
        return found, details

    def _ratios(self, rate: float, traces: Traces, details: dict[str, Any]) -> dict[Configuration, float]:
        """Return p95 over that of the best, for every configuration of the sweep."""
        rows = load_sweep(self.options.folder, rate).ranked()
        swept = {Configuration(row.configuration): row.median("latency_p95") for row in rows}
        most = max(len(row.windows) for row in rows)
        refined = [Configuration(row.configuration) for row in rows if len(row.windows) == most]
        best = min(refined, key=lambda c: swept[c])
        held = Counter(c for trace in traces.values() for c in trace[rate])
        last = {trace[rate][-1] for trace in traces.values()}
        settled = [c for c, windows in held.items() if windows >= SETTLED or c in last]
        again = self._measure_in_turns(rate, list(dict.fromkeys([best, *settled])))
        details[f"p95 in turns at {rate:g} r/s, ms"] = {
            str(c): [round(p95 * 1e3, 2) for p95 in values] for c, values in again.items()
        }
        ratios = {c: p95 / swept[best] for c, p95 in swept.items()}
        return ratios | {
            c: median(p95 / of_best for p95, of_best in zip(values, again[best], strict=True))
            for c, values in again.items()
        }

    def _server(self, rate: float, seed: int) -> AbstractContextManager[Attachment]:
        """Start a fresh server under a load, requests/s."""
        quick, limit = self.options.quick, self.options.foreign_limit
        return triton(rate, seed=seed, quick=quick, foreign_limit=limit)

    def _measure_in_turns(
        self, rate: float, configurations: list[Configuration]
    ) -> dict[Configuration, list[float]]:
        """Return the p95 of each in every round, s."""
        with self._server(rate, 0) as attachment:
            p95 = measure_in_turns(attachment, configurations, seconds=self.check, rounds=self.rounds)
            for configuration, values in p95.items():
                text = ", ".join(f"{value * 1e3:.1f}" for value in values)
                self.report(f"checked {rate:g} r/s  {attachment.space.format(configuration)}  p95 {text} ms")
        return p95

    def _tune(
        self,
        attachment: Attachment,
        agent: RRL,
        windows: int,
        name: str,
        *,
        log: list[dict[str, Any]],
    ) -> dict[float, list[Configuration]]:
        """Tune under both loads; return per load and window what the loop would leave the server with."""
        goal = objective(attachment)
        driver = drive(attachment, goal, agent, window=WINDOW, limits=WATCHED)
        traces: dict[float, list[Configuration]] = {}
        for rate in RATES:
            attachment.set_rate(rate)
            trace = traces[rate] = []
            for _ in range(2 * windows):
                record = driver.step()
                log.append(_entry(rate, record, attachment))
                if record.measurement is None or record.measurement.disturbed:
                    self.report(f"{name}  {rate:g} r/s  not counted: {record.decision.reason}")
                    continue
                trace.append(driver.loop.incumbent() or attachment.space.nearest(driver.running))
                p95 = goal.latency(record.measurement) * 1e3
                self.report(
                    f"{name}  {rate:g} r/s  {len(trace)}/{windows}  p95 {p95:.1f} ms  "
                    f"incumbent {attachment.space.format(trace[-1])}"
                )
                if len(trace) == windows:
                    break
        return traces


def windows_to_converge(ratios: list[float], *, near: float = NEAR) -> float:
    """Return the first window from which on the incumbent stays near the best, infinite if none.

    Args:
        ratios: Per window, swept p95 of the configuration the loop holds for its best, over the best.
        near: Within this factor of the best.
    """
    last_bad = max((n for n, ratio in enumerate(ratios, 1) if not ratio <= near), default=0)
    return float(last_bad + 1) if last_bad < len(ratios) else math.inf


def _trained(attachment: Attachment, seed: int) -> RRL:
    """Measure a server model and learn in simulation, as `tuner calibrate` and `tuner train` do."""
    model, _ = measure_server_model(attachment, 3.0)
    return train_in_simulation(model, objective(attachment), rates=RATES, space=attachment.space, seed=seed)


def _entry(rate: float, record: WindowRecord, attachment: Attachment) -> dict[str, Any]:
    """What is stored of a window."""
    entry: dict[str, Any] = {"rate": rate, "reason": record.decision.reason}
    if (measurement := record.measurement) is not None:
        p95 = measurement.latency_p95
        entry |= {
            "configuration": attachment.space.format(attachment.space.nearest(measurement.configuration)),
            "p95_ms": round(p95 * 1e3, 2) if math.isfinite(p95) else None,
            "disturbed": list(measurement.disturbed),
        }
    return entry

"""Windows until RRL is within 15 % of the sweep's best: cold, and warm from simulation."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from tuner.agents.rrl import RRL
from tuner.control import ControlLoop, Driver, GuardLimits
from tuner.control.calibration import measure_server_model, train_in_simulation
from tuner.experiments.bench import RATES, objective, triton
from tuner.experiments.catalogue import Options
from tuner.experiments.result import Result, row
from tuner.experiments.triton_sweep import load_sweep, measure
from tuner.knobs import Configuration
from tuner.profiler.attachment import Attachment

__all__ = ["run", "windows_to_converge"]

NEAR = 1.15
"""Within this factor of the best p95 counts as found."""
COLD_WINDOWS, WARM_WINDOWS = 18, 6
WINDOW = 4.0
CHECKED = 3
"""Windows of the sweep that every configuration judged must have, so that luck is not judged."""

Traces = dict[str, dict[float, list[Configuration]]]
"""Run -> load -> per window the configuration that the loop would leave the server with."""


def run(options: Options) -> Result:
    """Run the control loop cold and warm, as often as there are seeds, on fresh servers."""
    traces: Traces = {}
    for seed in range(options.seeds):
        for kind, windows in (("cold", COLD_WINDOWS), ("warm", WARM_WINDOWS)):
            with triton(RATES[0], seed=seed, quick=options.quick) as attachment:
                agent = _trained(attachment, seed) if kind == "warm" else RRL(attachment.space, seed=seed)
                name = f"{kind} seed {seed}"
                traces[name] = _tune(attachment, agent, 4 if options.quick else windows, name, options)
                agent.close()
    for rate in RATES:
        _check_yardstick(rate, traces, options)
    return _result(traces, options)


def _result(traces: Traces, options: Options) -> Result:
    """Count windows against the yardstick."""
    found: dict[str, list[float]] = {}
    details: dict[str, Any] = {}
    for rate in RATES:
        yardstick = _p95_by_configuration(options.folder, rate)
        best = min(yardstick.values())
        for name, trace in traces.items():
            ratios = [yardstick[c] / best for c in trace[rate]]
            label = f"{name.split()[0]} at {rate:g} r/s"
            first = next((n for n, ratio in enumerate(ratios, 1) if ratio <= NEAR), math.inf)
            found.setdefault(f"{label}: first found", []).append(float(first))
            found.setdefault(f"{label}: found and kept", []).append(windows_to_converge(ratios))
            found.setdefault(f"{label}: p95 at the end, over the best", []).append(ratios[-1])
            details[f"{name} at {rate:g} r/s"] = [round(ratio, 3) for ratio in ratios]
    limits = {"cold": 40.0, "warm": 10.0}
    rows = [
        row(name, values, unit="", published=NEAR)
        if name.endswith("best")
        else row(name, values, unit="windows", published=limits[name.split()[0]])
        for name, values in sorted(found.items())
    ]
    return Result(
        experiment="triton-convergence",
        seeds=options.seeds,
        seconds=0,
        command="",
        configuration={
            "rates": list(RATES),
            "window": WINDOW,
            "near": NEAR,
            "slo_ms": 30.0,
            "windows_cold": COLD_WINDOWS,
            "windows_warm": WARM_WINDOWS,
        },
        rows=rows,
        details=details,
    )


def _check_yardstick(rate: float, traces: Traces, options: Options) -> None:
    """Measure again what the loop settled on and the sweep measured too seldom to be judged by."""
    sweep = load_sweep(options.folder, rate)
    often = {Configuration(r.configuration) for r in sweep.rows if len(r.windows) >= CHECKED}
    judged = {configuration for trace in traces.values() for configuration in trace[rate]} - often
    with triton(rate, quick=options.quick) as attachment:
        ordered = sorted(judged, key=attachment.space.encode)
        measure(attachment, sweep, ordered, 1 if options.quick else CHECKED - 1, options)


def windows_to_converge(ratios: list[float]) -> float:
    """Return the first window from which on the incumbent stays within 15 % of the best, infinite if none.

    Args:
        ratios: Per window, swept p95 of the configuration the loop holds for its best, over the best.
    """
    last_bad = max((n for n, ratio in enumerate(ratios, 1) if not ratio <= NEAR), default=0)
    return float(last_bad + 1) if last_bad < len(ratios) else math.inf


def _p95_by_configuration(folder: Path, rate: float) -> dict[Configuration, float]:
    return {
        Configuration(swept.configuration): swept.median("latency_p95")
        for swept in load_sweep(folder, rate).ranked()
    }


def _trained(attachment: Attachment, seed: int) -> RRL:
    """Measure a server model and learn in simulation, as `tuner calibrate` and `tuner train` do."""
    model, _ = measure_server_model(attachment, 3.0)
    return train_in_simulation(model, objective(attachment), rates=RATES, grids=attachment.grids, seed=seed)


def _tune(
    attachment: Attachment, agent: RRL, windows: int, name: str, options: Options
) -> dict[float, list[Configuration]]:
    """Tune under both loads; return per load and window what the loop would leave the server with."""
    goal = objective(attachment)
    loop = ControlLoop(attachment.space, goal, agent, limits=GuardLimits())
    driver = Driver(attachment.backend, attachment.profiler, loop, clock=attachment.clock, window=WINDOW)
    traces: dict[float, list[Configuration]] = {}
    for rate in RATES:
        attachment.set_rate(rate)
        trace = traces[rate] = []
        for _ in range(2 * windows):
            record = driver.step()
            if record.measurement is None or record.measurement.disturbed:
                options.report(f"{name}  {rate:g} r/s  not counted: {record.decision.reason}")
                continue
            trace.append(loop.incumbent() or attachment.space.nearest(driver.running))
            p95 = goal.latency(record.measurement) * 1e3
            options.report(
                f"{name}  {rate:g} r/s  {len(trace)}/{windows}  p95 {p95:.1f} ms  "
                f"incumbent {attachment.space.format(trace[-1])}"
            )
            if len(trace) == windows:
                break
    return traces

"""Windows until RRL is within 15 % of the sweep's best: cold, and warm from simulation."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from tuner.agents.rrl import RRL
from tuner.control import ControlLoop, Driver, GuardLimits
from tuner.experiments.bench import RATES, objective, triton
from tuner.experiments.catalogue import Options
from tuner.experiments.result import Result, row
from tuner.experiments.triton_sweep import load_sweep
from tuner.knobs import Configuration, KnobSpace
from tuner.profiler.attachment import Attachment

__all__ = ["run", "windows_to_converge"]

NEAR = 1.15
"""Within this factor of the best p95 counts as found."""
COLD_WINDOWS, WARM_WINDOWS = 40, 14
WINDOW = 4.0


def run(options: Options) -> Result:
    """Run the control loop cold and warm, as often as there are seeds, on fresh servers."""
    yardstick = {rate: _p95_by_configuration(options.folder, rate) for rate in RATES}
    details: dict[str, Any] = {}
    found: dict[str, list[float]] = {}
    for seed in range(options.seeds):
        for kind, windows in (("cold", COLD_WINDOWS), ("warm", WARM_WINDOWS)):
            with triton(RATES[0], seed=seed, quick=options.quick) as attachment:
                agent = _trained(attachment, seed) if kind == "warm" else RRL(attachment.space, seed=seed)
                trace = _tune(attachment, agent, windows if not options.quick else 4, yardstick, options)
                agent.close()
            for rate, incumbents in trace.items():
                number = windows_to_converge(incumbents)
                found.setdefault(f"{kind} at {rate:g} r/s", []).append(number)
                details[f"{kind} seed {seed} at {rate:g} r/s"] = incumbents
                options.report(f"{kind} seed {seed} at {rate:g} r/s: {number:g} windows")
    limits = {"cold": 40.0, "warm": 10.0}
    rows = [
        row(name, values, unit="windows", published=limits[name.split()[0]], note="target: at most")
        for name, values in sorted(found.items())
    ]
    return Result(
        experiment="triton-convergence",
        seeds=options.seeds,
        seconds=0,
        command="",
        configuration={"rates": list(RATES), "window": WINDOW, "near": NEAR, "slo_ms": 30.0},
        rows=rows,
        details=details,
    )


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
    from tuner.control.calibration import measure_server_model, train_in_simulation

    model, _ = measure_server_model(attachment, 3.0)
    return train_in_simulation(
        model,
        objective(attachment),
        rates=RATES,
        grids=attachment.grids,
        seed=seed,
    )


def _tune(
    attachment: Attachment,
    agent: RRL,
    windows: int,
    yardstick: dict[float, dict[Configuration, float]],
    options: Options,
) -> dict[float, list[float]]:
    """Tune under both loads; return per load and window how far the incumbent is from the best."""
    goal = objective(attachment)
    loop = ControlLoop(attachment.space, goal, agent, limits=GuardLimits())
    driver = Driver(attachment.backend, attachment.profiler, loop, clock=attachment.clock, window=WINDOW)
    traces: dict[float, list[float]] = {}
    for rate in RATES:
        attachment.set_rate(rate)
        trace = traces[rate] = []
        for _ in range(windows):
            record = driver.step()
            incumbent = _incumbent(attachment.space, loop, driver)
            trace.append(round(_ratio(yardstick[rate], incumbent), 4))
            p95 = goal.latency(record.measurement) * 1e3 if record.measurement else math.nan
            options.report(
                f"  {rate:g} r/s  {len(trace)}/{windows}  p95 {p95:.1f} ms  incumbent {trace[-1]:.2f}x best"
            )
    return traces


def _incumbent(space: KnobSpace, loop: ControlLoop, driver: Driver) -> Configuration:
    """Return what the loop would leave the server with if it ended now."""
    good = loop.ledger.good(loop.level) if loop.level is not None else []
    return space.decode(good[0]) if good else space.nearest(driver.running)


def _ratio(yardstick: dict[Configuration, float], configuration: Configuration) -> float:
    best = min(yardstick.values())
    return yardstick.get(configuration, math.inf) / best

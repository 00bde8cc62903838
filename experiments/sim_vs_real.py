"""Simulated against real p95 on the swept grid, with a server model fitted to a few short windows."""

from __future__ import annotations

import math
from statistics import median

from tuner.control.calibration import measure_server_model
from tuner.envs.simulator.oracle import simulate
from tuner.experiments.bench import RATES, triton
from tuner.experiments.catalogue import Options
from tuner.experiments.result import Result, Row, row
from tuner.experiments.triton_sweep import load_sweep
from tuner.knobs import Configuration

__all__ = ["run"]

OVERLOAD = 0.5
"""Configurations whose real p95 is above this, s, have no steady latency and are left out."""


def run(options: Options) -> Result:
    """Calibrate as ``tuner calibrate`` does, simulate every swept configuration, and compare."""
    with triton(RATES[0], quick=options.quick) as attachment:
        model, _ = measure_server_model(attachment, 3.0)
    rows: list[Row] = []
    errors: list[float] = []
    for rate in RATES:
        for swept in load_sweep(options.folder, rate).ranked():
            real = swept.median("latency_p95")
            if not real < OVERLOAD:
                continue
            simulated = simulate(model, Configuration(swept.configuration), rate, seconds=60.0).latency_p95
            error = (simulated / real - 1) * 100
            errors.append(error)
            name = f"{rate:g}r/s " + " ".join(f"{k}={v:g}" for k, v in swept.configuration.items())
            note = f"real {real * 1e3:.1f} ms, simulated {simulated * 1e3:.1f} ms"
            rows.append(row(name, [error], unit="%", note=note))
    sizes = [abs(e) for e in errors if math.isfinite(e)]
    head = Row(
        id="median absolute error of p95",
        published=20.0,
        measured=round(median(sizes), 3),
        low=round(min(sizes), 3),
        high=round(max(sizes), 3),
        unit="%",
        note=f"{len(sizes)} configurations; target: at most",
    )
    return Result(
        experiment="sim-vs-real",
        seeds=1,
        configuration={"server": model.to_json()},
        rows=[head, *rows],
    )

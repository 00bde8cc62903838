"""The yardstick: every configuration of the embedded Triton measured under two loads."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from tuner.control.sweep import SweepResult, measure_configurations
from tuner.experiments.bench import GRIDS, RATES, distinct, triton
from tuner.experiments.catalogue import Options
from tuner.experiments.result import Result, Row, row
from tuner.profiler.attachment import Attachment

__all__ = ["load_sweep", "run", "sweep_file"]

SECONDS = 6.0


def sweep_file(folder: Path, rate: float) -> Path:
    """Return where the sweep of one load is stored."""
    return folder / f"triton-sweep-{rate:g}.json"


def load_sweep(folder: Path, rate: float) -> SweepResult:
    """Read the stored sweep of one load.

    Raises:
        StorageError: It was not measured yet; run the experiment ``triton-sweep`` first.
    """
    return SweepResult.load(sweep_file(folder, rate))


def run(options: Options) -> Result:
    """Measure every configuration under both loads, as often as there are seeds."""
    rows: list[Row] = []
    for rate in RATES:
        with triton(rate, quick=options.quick) as attachment:
            result = _sweep(attachment, rate, options)
        for swept in result.ranked():
            name = f"{rate:g}r/s " + " ".join(f"{k}={v:g}" for k, v in swept.configuration.items())
            quiet = [w for w in swept.windows if not w["disturbed"]] or swept.windows
            rows.append(row(name, [w["latency_p95"] * 1e3 for w in quiet], unit="ms", note="p95"))
    return Result(
        experiment="triton-sweep",
        seeds=options.seeds,
        seconds=0,
        command="",
        configuration={
            "rates": list(RATES),
            "grids": {k: list(v) for k, v in GRIDS.items()},
            "window": SECONDS,
        },
        rows=rows,
    )


def _sweep(attachment: Attachment, rate: float, options: Options) -> SweepResult:
    """Measure one load and store it after every window."""
    result = SweepResult(
        command="tuner experiment run triton-sweep",
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        target="embedded",
        server=f"{attachment.description.server} {attachment.description.version}",
        model=attachment.description.model,
        rate=rate,
        seconds=SECONDS,
        repeats=options.seeds,
        knobs=attachment.space.to_json(),
    )
    configurations = distinct(attachment)
    turns = measure_configurations(
        attachment.backend,
        attachment.profiler,
        configurations,
        seconds=2.0 if options.quick else SECONDS,
        repeats=options.seeds,
        restore=attachment.restore,
    )
    for number, (configuration, outcome) in enumerate(turns, 1):
        result.add(configuration, outcome)
        result.save(sweep_file(options.folder, rate))
        p95 = getattr(outcome, "latency_p95", float("nan")) * 1e3
        options.report(
            f"{rate:g} r/s  {number}/{len(configurations) * options.seeds}  "
            f"{attachment.space.format(configuration)}  p95 {p95:.1f} ms"
        )
    return result

"""The yardstick: every configuration of the embedded Triton measured under two loads."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from tuner.control.drive.sweep import SweepResult, measure_configurations
from tuner.experiments.frame.catalogue import Options
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.live.testbed import GRIDS, RATES, distinct, triton
from tuner.knobs import Configuration
from tuner.profiler.attachment import Attachment

__all__ = ["load_sweep", "measure", "refine", "run", "summary", "sweep_file"]

SECONDS = 6.0
REFINED, REFINEMENTS = 12, 2
"""How many of the best configurations are measured again, and how often."""


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
    """Measure every configuration under both loads, then the best ones again."""
    for rate in RATES:
        with triton(rate, quick=options.quick) as attachment:
            result = _empty(attachment, rate, options.seeds)
            measure(attachment, result, distinct(attachment), options.seeds, options)
            refine(attachment, result, options)
    return summary(options)


def refine(attachment: Attachment, result: SweepResult, options: Options) -> None:
    """Measure the best configurations again, so that the best of them is not the luck of one window."""
    best = [Configuration(swept.configuration) for swept in result.ranked()[:REFINED]]
    measure(attachment, result, best, 1 if options.quick else REFINEMENTS, options)


def summary(options: Options) -> Result:
    """Return the stored sweeps as a result."""
    rows: list[Row] = []
    for rate in RATES:
        for swept in load_sweep(options.folder, rate).ranked():
            name = f"{rate:g}r/s " + " ".join(f"{k}={v:g}" for k, v in swept.configuration.items())
            quiet = [w for w in swept.windows if not w["disturbed"]] or swept.windows
            rows.append(row(name, [w["latency_p95"] * 1e3 for w in quiet], unit="ms", note="p95"))
    return Result(
        experiment="triton-sweep",
        seeds=options.seeds,
        configuration={
            "rates": list(RATES),
            "grids": {name: list(grid) for name, grid in GRIDS.items()},
            "window": SECONDS,
            "refined": REFINED,
            "refinements": REFINEMENTS,
        },
        rows=rows,
    )


def _empty(attachment: Attachment, rate: float, repeats: int) -> SweepResult:
    return SweepResult(
        command="tuner experiment run triton-sweep",
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        target="embedded",
        server=f"{attachment.description.server} {attachment.description.version}",
        model=attachment.description.model,
        rate=rate,
        seconds=SECONDS,
        repeats=repeats,
        knobs=attachment.space.to_json(),
    )


def measure(
    attachment: Attachment,
    result: SweepResult,
    configurations: list[Configuration],
    repeats: int,
    options: Options,
) -> None:
    """Measure configurations, and store the sweep after every window."""
    turns = measure_configurations(
        attachment.backend,
        attachment.profiler,
        configurations,
        seconds=2.0 if options.quick else SECONDS,
        repeats=repeats,
        restore=attachment.restore,
    )
    for number, (configuration, outcome) in enumerate(turns, 1):
        result.add(configuration, outcome)
        result.save(sweep_file(options.folder, result.rate))
        p95 = getattr(outcome, "latency_p95", float("nan")) * 1e3
        options.report(
            f"{result.rate:g} r/s  {number}/{len(configurations) * repeats}  "
            f"{attachment.space.format(configuration)}  p95 {p95:.1f} ms"
        )

"""The yardstick: every configuration of the embedded Triton measured under two loads."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tuner.adapters.triton.configuration import MAX_BATCH_SIZE
from tuner.adapters.triton.knobs import kind_of
from tuner.control.drive.sweep import SweepResult, measure_configurations
from tuner.errors import InvalidInput
from tuner.experiments.frame.experiment import Answers, Experiment, Scaled, experiment
from tuner.experiments.frame.result import Row, row
from tuner.experiments.live.testbed import GRIDS, QUICK_GRIDS, RATES, distinct, triton
from tuner.knobs import Configuration, KnobSpace
from tuner.profiler.attachment import Attachment

__all__ = ["TritonSweep", "check_sweeps", "load_sweep", "sweep_file"]

SECONDS = 6.0
REFINED, REFINEMENTS = 12, 2
"""How many of the best configurations are measured again, and how often."""


def sweep_file(folder: Path, rate: float) -> Path:
    """Return where the sweep of one load is stored."""
    return folder / f"triton-sweep-{rate:g}.json"


def load_sweep(folder: Path, rate: float) -> SweepResult:
    """Read the stored sweep of one load.

    Raises:
        StorageError: It was not measured yet, see :func:`check_sweeps`, or is damaged.
    """
    return SweepResult.load(sweep_file(folder, rate))


def check_sweeps(folder: Path, *, quick: bool) -> None:
    """Check that the sweep of each load is stored with all configurations of the grid, for who builds on it.

    Args:
        folder: Where the sweeps are stored.
        quick: Whether the grid is that of a quick run.

    Raises:
        InvalidInput: One was not measured yet, was interrupted, or is of another grid.
        StorageError: One is damaged.
    """
    grids = QUICK_GRIDS if quick else GRIDS
    limit = int(max(grids[MAX_BATCH_SIZE]))
    space = KnobSpace([kind_of(name, limit).knob(name, grid) for name, grid in grids.items()])
    wanted = {space.decode(int(number)) for number in space.distinct}
    for rate in RATES:
        path = sweep_file(folder, rate)
        rows = load_sweep(folder, rate).ranked() if path.exists() else []
        found = wanted.intersection(Configuration(row.configuration) for row in rows)
        if len(found) < len(wanted):
            problem = f"{path} has {len(found)} of the {len(wanted)} configurations that this needs"
            command = "tuner experiment run triton-sweep" + (" --quick" if quick else "")
            raise InvalidInput("NAME", problem, f"run `{command}` first")


@experiment(
    name="triton-sweep",
    title="Exhaustive grid of the embedded Triton's MLP under two loads: the yardstick",
    minutes=20,
    live=True,
    foreign_limit=True,
)
class TritonSweep(Experiment[float, SweepResult]):
    """Measures every configuration under both loads, then the best ones again."""

    seconds = Scaled(SECONDS, quick=2.0)
    refinements = Scaled(REFINEMENTS, quick=1)

    def tasks(self) -> tuple[float, ...]:
        return RATES

    def seeds_of(self, _: float) -> tuple[int]:
        """All repeats are on one server."""
        return (0,)

    def measure(self, rate: float, seed: int) -> SweepResult:
        quick, limit = self.options.quick, self.options.foreign_limit
        with triton(rate, quick=quick, seed=seed, foreign_limit=limit) as attachment:
            result = _empty(attachment, rate, self.options.seeds)
            self._add(attachment, result, distinct(attachment), self.options.seeds)
            # The best of all must not be the luck of one window.
            best = [Configuration(swept.configuration) for swept in result.ranked()[:REFINED]]
            self._add(attachment, result, best, self.refinements)
        return result

    def _add(
        self, attachment: Attachment, result: SweepResult, some: list[Configuration], repeats: int
    ) -> None:
        """Measure configurations, and store the sweep after every window."""
        turns = measure_configurations(
            attachment.backend,
            attachment.profiler,
            some,
            seconds=self.seconds,
            repeats=repeats,
            restore=attachment.restore,
        )
        for number, (configuration, outcome) in enumerate(turns, 1):
            result.add(configuration, outcome)
            result.save(sweep_file(self.options.folder, attachment.rate))
            p95 = getattr(outcome, "latency_p95", float("nan")) * 1e3
            self.report(
                f"{attachment.rate:g} r/s  {number}/{len(some) * repeats}  "
                f"{attachment.space.format(configuration)}  p95 {p95:.1f} ms"
            )

    def rows(self, found: Answers[float, SweepResult]) -> Iterator[Row]:
        for rate, (result,) in found.items():
            for swept in result.ranked():
                name = f"{rate:g}r/s " + " ".join(f"{k}={v:g}" for k, v in swept.configuration.items())
                yield row(name, [w["latency_p95"] * 1e3 for w in swept.counted], unit="ms", note="p95")

    def configuration(self) -> dict[str, Any]:
        return {
            "rates": list(RATES),
            "grids": {name: list(grid) for name, grid in GRIDS.items()},
            "window": SECONDS,
            "refined": REFINED,
            "refinements": REFINEMENTS,
        }


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

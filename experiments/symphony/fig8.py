"""Symphony, Figure 8: how large the batches are at the goodput of each system (the scenarios of Table 4)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tuner.experiments.frame.options import Options
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.symphony.two_models import Task, panel_name, search, tasks_of
from tuner.experiments.zoo import TABLE_4
from tuner.report import style
from tuner.report.series import curve

__all__ = ["plot", "run", "share_in_batches_of"]

NAME = "symphony-fig8"
SYSTEMS = ("symphony", "nexus", "clockwork", "eager")
MOST = {"ResNet50": {"symphony": 14, "nexus": 6}, "InceptionResNetV2": {"symphony": 8, "nexus": 3}}
"""Section 5.2.2: most requests run in larger batches than these."""
LARGEST = 20
"""Up to which the curves go."""


def run(options: Options) -> Result:
    """Search every goodput and count the batches there."""
    tasks = tasks_of(options, SYSTEMS)
    found = dict(zip(tasks, options.run_all(measure, tasks, "models, systems and seeds"), strict=True))
    rows: list[Row] = []
    series = []
    sizes = range(1, LARGEST + 1)
    for setup in TABLE_4:
        model = setup.model.name
        for system in SYSTEMS:
            counts = [found[t] for t in tasks if (t.model, t.system) == (model, system)]
            rows += _rows(model, system, counts)
            shares = [[100 * _at(each, size) / each.sum() for each in counts] for size in sizes]
            series.append(curve(system, sizes, shares, panel=panel_name(setup)))
    return Result(
        experiment=NAME,
        seeds=options.seeds,
        configuration={"requests": tasks[0].requests, "arrivals": "Poisson", "bad_rate": 0.01},
        rows=rows,
        series=series,
    )


def measure(task: Task) -> np.ndarray:
    """Return the number of batches of each size at the goodput.   # (B+1,)."""
    return search(task).outcome.sessions[0].batches


def share_in_batches_of(counts: np.ndarray, least: int) -> float:
    """Return which share of the requests ran in batches of at least so many.

    Args:
        counts: Batches per size.   # (B+1,)
        least: Requests in a batch.
    """
    requests = np.arange(counts.size) * counts
    return float(requests[least:].sum() / requests.sum())


def _at(counts: np.ndarray, size: int) -> int:
    return int(counts[size]) if size < counts.size else 0


def _rows(model: str, system: str, counts: list[np.ndarray]) -> list[Row]:
    means = [float(np.arange(each.size) @ each / each.sum()) for each in counts]
    rows = [row(f"{model}, {system}: mean batch", means, unit="requests")]
    size = MOST[model].get(system)
    if size is not None:
        for least, note in ((size, ""), (size + 1, "the paper: most")):
            shares = [100 * share_in_batches_of(each, least) for each in counts]
            rows.append(
                row(f"{model}, {system}: requests in batches of {least} or more", shares, unit="%", note=note)
            )
    return rows


def plot(result: Result, folder: Path) -> list[Path]:
    """Draw how often each batch size occurs."""
    figure, axes = style.figure("Batch sizes at each system's own goodput", columns=2)
    for axis, setup in zip(axes.flat, TABLE_4, strict=True):
        series = result.panel(panel_name(setup))
        largest = max(int(x) for one in series for x, y in zip(one.x, one.y, strict=True) if y and y > 0.1)
        style.curves(axis, series)
        axis.set(title=panel_name(setup), xlabel="batch size", ylabel="share of the batches, %")
        axis.set_xlim(0.5, largest + 0.5)
        axis.set_xticks(range(1, largest + 1, 1 if largest < 12 else 2))
        axis.set_ylim(bottom=0)
        style.legend(axis, loc="upper center")
    return [style.save(figure, folder, NAME)]

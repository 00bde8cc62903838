"""Symphony, Figure 8: how large the batches are at the goodput of each system (the scenarios of Table 4)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tuner.experiments.frame.experiment import Answers, experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.symphony.clusters.two_models import Alone, AtGoodput, panel_name
from tuner.experiments.zoo import TABLE_4, Setup
from tuner.report import style

__all__ = ["BatchSizes", "share_in_batches_of"]

MOST = {"ResNet50": {"symphony": 14, "nexus": 6}, "InceptionResNetV2": {"symphony": 8, "nexus": 3}}
"""Section 5.2.2: most requests run in larger batches than these."""
LARGEST = 20
"""Up to which the curves go."""


@experiment(
    name="symphony-fig8",
    title="Batch sizes at the goodput of each system",
    paper="Symphony",
    minutes=0.5,
)
class BatchSizes(AtGoodput[np.ndarray]):
    """The number of batches of each size.   # answers: (B+1,)."""

    def measure(self, task: Alone, seed: int) -> np.ndarray:
        return self.search(task, seed).outcome.sessions[0].batches

    def rows(self, found: Answers[Alone, np.ndarray]) -> Iterator[Row]:
        for (model, system), counts in found.items():
            name = f"{model}, {system}"
            means = [float(np.arange(each.size) @ each / each.sum()) for each in counts]
            yield row(f"{name}: mean batch", means, unit="requests")
            size = MOST[model].get(system)
            for least, note in ((size, ""), (size + 1, "the paper: most")) if size is not None else ():
                shares = [100 * share_in_batches_of(each, least) for each in counts]
                yield row(f"{name}: requests in batches of {least} or more", shares, unit="%", note=note)

    def points(self, _: Setup, __: str, counts: list[np.ndarray]) -> tuple[range, list[list[float]]]:
        sizes = range(1, LARGEST + 1)
        return sizes, [[100 * _at(each, size) / each.sum() for each in counts] for size in sizes]

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw how often each batch size occurs."""
        figure, axes = style.figure("Batch sizes at each system's own goodput", columns=2)
        for axis, setup in zip(axes.flat, TABLE_4, strict=True):
            series = result.panel(panel_name(setup))
            largest = max(
                int(x) for one in series for x, y in zip(one.x, one.y, strict=True) if y and y > 0.1
            )
            style.curves(axis, series)
            axis.set(title=panel_name(setup), xlabel="batch size", ylabel="share of the batches, %")
            axis.set_xlim(0.5, largest + 0.5)
            axis.set_xticks(range(1, largest + 1, 1 if largest < 12 else 2))
            axis.set_ylim(bottom=0)
            style.legend(axis, loc="upper center")
        return [style.Drawing(figure)]


def share_in_batches_of(counts: np.ndarray, least: int) -> float:
    """Return which share of the requests ran in batches of at least a size.

    Args:
        counts: Batches per size.   # (B+1,)
        least: Requests in a batch.
    """
    requests = np.arange(counts.size) * counts
    return float(requests[least:].sum() / requests.sum())


def _at(counts: np.ndarray, size: int) -> int:
    return int(counts[size]) if size < counts.size else 0

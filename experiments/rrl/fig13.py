"""RRL, Fig. 13: latency over time on a GPU server under the Wikipedia-like and the Dynamic load.

Inception V3, whose knobs are the largest batch, its timeout and the batch threads; otherwise as Fig. 12.
"""

from __future__ import annotations

from pathlib import Path

from tuner.experiments.frame.experiment import experiment
from tuner.experiments.frame.result import Result
from tuner.experiments.rrl.latency import LatencyStudy, draw_latencies
from tuner.experiments.rrl.study import DYNAMIC_WINDOWS, GPU, MEAN, WIKI_WINDOWS, LearningCase

__all__ = ["CASES", "GpuLatency"]

CASES = (
    LearningCase(
        name="Inception on GPU, WiKi",
        env=GPU,
        model="inception",
        workload="wikipedia",
        windows=WIKI_WINDOWS,
        arguments=MEAN,
    ),
    LearningCase(
        name="Inception on GPU, Dynamic",
        env=GPU,
        model="inception",
        workload="dynamic",
        windows=DYNAMIC_WINDOWS,
        arguments=MEAN,
    ),
)
PUBLISHED: dict[str, dict[str, float | None]] = {
    "Inception on GPU, WiKi": {"capes": 47.1, "deeprm": None},
    "Inception on GPU, Dynamic": {"capes": 38.0, "deeprm": 69.1},
}
"""By how many per cent RRL's mean latency is below the rival's (sections 6.3 and 6.4). What it is below
DeepRM's under WiKi has been lost from the sentence that gives CAPES'; the summary says "up to 69.3 %"."""


@experiment(
    name="rrl-fig13",
    title="Latency over time on a GPU server: RRL, CAPES and DeepRM",
    paper="RRL",
    minutes=20,
)
class GpuLatency(LatencyStudy):
    """Every load on the GPU server."""

    cases = CASES
    published = PUBLISHED

    @staticmethod
    def plot(result: Result, folder: Path) -> list[Path]:
        """Draw latency over time as in the paper: a column for each load, which is on top."""
        return draw_latencies(result, CASES, folder, "Mean latency on the GPU server")

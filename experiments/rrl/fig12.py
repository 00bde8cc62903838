"""RRL, Fig. 12: latency over time on a CPU server under the Wikipedia-like and the Dynamic load.

Inception V3 (requests of one size) and DeepSpeech (of many), three knobs with eleven values each; the
objective is the least mean latency. RRL, CAPES and DeepRM start cold and meet the same arrivals.
"""

from __future__ import annotations

from pathlib import Path

from tuner.experiments.frame.experiment import experiment
from tuner.experiments.frame.result import Result
from tuner.experiments.rrl.latency import LatencyStudy, draw_latencies
from tuner.experiments.rrl.study import CPU, DYNAMIC_WINDOWS, MEAN, WIKI_WINDOWS, LearningCase

__all__ = ["CASES", "CpuLatency"]

CASES = tuple(
    LearningCase(
        name=f"{label}, {load}",
        env=CPU,
        model=model,
        workload=workload,
        windows=windows,
        arguments=MEAN,
    )
    for model, label in (("inception", "Inception"), ("deepspeech", "DeepSpeech"))
    for workload, load, windows in (
        ("wikipedia", "WiKi", WIKI_WINDOWS),
        ("dynamic", "Dynamic", DYNAMIC_WINDOWS),
    )
)
PUBLISHED: dict[str, dict[str, float | None]] = {
    "DeepSpeech, WiKi": {"capes": 79.0, "deeprm": 51.7},
    "Inception, WiKi": {"capes": 50.6, "deeprm": 52.9},
    "DeepSpeech, Dynamic": {"capes": 69.3, "deeprm": 49.2},
    "Inception, Dynamic": {"capes": 58.1, "deeprm": 45.8},
}
"""By how many per cent RRL's mean latency is below the rival's (sections 6.3 and 6.4)."""


@experiment(
    name="rrl-fig12",
    title="Latency over time on a CPU server: RRL, CAPES and DeepRM",
    paper="RRL",
    minutes=30,
)
class CpuLatency(LatencyStudy):
    """Every model and load on the CPU server."""

    cases = CASES
    published = PUBLISHED

    @staticmethod
    def plot(result: Result, folder: Path) -> list[Path]:
        """Draw latency over time as in the paper: a column for each load, which is on top."""
        return draw_latencies(result, CASES, folder, "Mean latency on the CPU server")

"""RRL, Fig. 12: latency over time on a CPU server under the Wikipedia-like and the Dynamic load.

Inception V3 (requests of one size) and DeepSpeech (of many), three knobs with eleven values each; the
objective is the least mean latency. RRL, CAPES and DeepRM start cold and meet the same arrivals.
"""

from __future__ import annotations

from pathlib import Path

from tuner.experiments.frame.options import Options
from tuner.experiments.frame.result import Result
from tuner.experiments.rrl.latency import draw_latencies, latency_result
from tuner.experiments.rrl.study import CPU, DYNAMIC_WINDOWS, MEAN, WIKI_WINDOWS, Case

__all__ = ["CASES", "plot", "run"]

NAME = "rrl-fig12"
CASES = tuple(
    Case(
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
PUBLISHED = {
    "DeepSpeech, WiKi": {"capes": 79.0, "deeprm": 51.7},
    "Inception, WiKi": {"capes": 50.6, "deeprm": 52.9},
    "DeepSpeech, Dynamic": {"capes": 69.3, "deeprm": 49.2},
    "Inception, Dynamic": {"capes": 58.1, "deeprm": 45.8},
}
"""By how many per cent RRL's mean latency is below the rival's (sections 6.3 and 6.4)."""


def run(options: Options) -> Result:
    """Run every model, load, agent and seed."""
    return latency_result(NAME, CASES, PUBLISHED, options)


def plot(result: Result, folder: Path) -> list[Path]:
    """Draw latency over time as in the paper: a column for each load, which is on top."""
    return draw_latencies(result, CASES, folder, "Mean latency on the CPU server")

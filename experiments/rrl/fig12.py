"""RRL, Fig. 12: latency over time on a CPU server under the Wikipedia-like and the Dynamic load.

Inception V3 (requests of one size) and DeepSpeech (of many), three knobs with eleven values each; the
objective is the least mean latency. RRL, CAPES and DeepRM start without windows of these servers and meet the
same arrivals; the default form of RRL brings a network that was trained on random ones of the same families.
"""

from __future__ import annotations

from typing import ClassVar

from tuner.experiments.frame.experiment import experiment
from tuner.experiments.rrl.latency import LatencyStudy, latency_cases
from tuner.experiments.rrl.study import CPU

__all__ = ["CpuLatency"]


@experiment(
    name="rrl-fig12",
    title="Latency over time on a CPU server: RRL, CAPES and DeepRM",
    paper="RRL",
    minutes=30,
)
class CpuLatency(LatencyStudy):
    """Every model and load on the CPU server."""

    server = "CPU"
    cases = latency_cases(CPU, {"Inception": "inception", "DeepSpeech": "deepspeech"})
    published: ClassVar = {
        "DeepSpeech, WiKi": {"capes": 79.0, "deeprm": 51.7},
        "Inception, WiKi": {"capes": 50.6, "deeprm": 52.9},
        "DeepSpeech, Dynamic": {"capes": 69.3, "deeprm": 49.2},
        "Inception, Dynamic": {"capes": 58.1, "deeprm": 45.8},
    }

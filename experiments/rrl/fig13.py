"""RRL, Fig. 13: latency over time on a GPU server under the Wikipedia-like and the Dynamic load.

Inception V3, whose knobs are the largest batch, its timeout and the batch threads; otherwise as Fig. 12.
"""

from __future__ import annotations

from typing import ClassVar

from tuner.experiments.frame.experiment import experiment
from tuner.experiments.rrl.latency import LatencyStudy, latency_cases
from tuner.experiments.rrl.study import GPU

__all__ = ["GpuLatency"]


@experiment(
    name="rrl-fig13",
    title="Latency over time on a GPU server: RRL, CAPES and DeepRM",
    paper="RRL",
    minutes=20,
)
class GpuLatency(LatencyStudy):
    """Every load on the GPU server."""

    server = "GPU"
    cases = latency_cases(GPU, {"Inception on GPU": "inception"})
    published: ClassVar = {
        # The sentence that gives CAPES' lacks that of DeepRM; the summary says "up to 69.3 %".
        "Inception on GPU, WiKi": {"capes": 47.1, "deeprm": None},
        "Inception on GPU, Dynamic": {"capes": 38.0, "deeprm": 69.1},
    }

"""What gpu-proof makes of its windows; these were measured by nobody."""

from __future__ import annotations

import json
from dataclasses import replace

from tests.builders import measurement
from tests.experiments.quick import quick
from tuner.experiments.live.gpu_proof import BEST, LEAST, GpuProof, Proof, Swept, choose
from tuner.knobs import Configuration
from tuner.measurement import Measurement

GRID = ((0.010, 0.8, 4), (0.018, 0.5, 16), (0.030, 0.2, 32))
"""p95, share of the GPU and batch."""


def window(p95: float, gpu: float, batch: int) -> Measurement:
    """A window of a configuration on a GPU."""
    measured = measurement(p95, running=Configuration(max_batch_size=float(batch)))
    return replace(measured, gpu=gpu, gpu_memory=2.0**30, gpu_power=70.0)


def swept(p95: float, gpu: float, batch: int) -> Swept:
    return Swept(Configuration(max_batch_size=float(batch)), window(p95, gpu, batch))


def test_what_breaks_the_slo_is_no_least_use() -> None:
    """The SLO is twice the best p95."""
    slo, chosen = choose([swept(*one) for one in GRID])

    assert slo == 0.020
    assert (chosen[BEST]["max_batch_size"], chosen[LEAST]["max_batch_size"]) == (4, 16)


def test_tuning_is_compared_with_the_grid() -> None:
    """By the windows in turns, round by round, whatever the grid's own windows showed."""
    grid = [swept(*one) for one in GRID]
    slo, chosen = choose(grid)
    chosen |= {
        f"tuned for {goal}": Configuration(max_batch_size=b) for goal, b in (("latency", 8.0), ("gpu", 16.0))
    }
    judged = {
        chosen[BEST]: [window(0.012, 0.8, 4), window(0.020, 0.8, 4)],
        Configuration(max_batch_size=8.0): [window(0.0132, 0.8, 8), window(0.022, 0.8, 8)],
        chosen[LEAST]: [window(0.018, 0.4, 16), window(0.018, 0.4, 16)],
    }
    proof = Proof(["NVIDIA H200"], 100.0, slo, grid, {"latency": grid[:1], "gpu": grid[1:]}, chosen, judged)
    experiment = quick(GpuProof)

    found = {row.id: row.measured for row in experiment.rows({None: [proof]})}

    assert found["tuned for latency: p95 over the grid's best"] == 1.1
    assert found["tuned for gpu: GPU use over the grid's least"] == 1.0
    assert found["tuned for gpu: GPU use saved against the best p95"] == 50.0
    assert found["grid, least GPU use within the SLO: GPU use"] == 40.0
    assert found["grid, best p95: GPU memory"] == 1024.0
    details = json.loads(json.dumps(experiment.details({None: [proof]})))
    assert details["grid"][2]["max_batch_size"] == 32
    assert len(details["judged"]["tuned for gpu"]) == 2

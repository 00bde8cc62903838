"""What gpu-proof makes of its windows; they were measured by nobody, for there is no GPU here."""

from __future__ import annotations

import json
from dataclasses import replace

from tests.builders import measurement
from tests.experiments.quick import quick
from tuner.experiments.live.gpu_proof import GpuProof, Proof, Swept
from tuner.knobs import Configuration


def swept(p95: float, gpu: float, batch: int) -> Swept:
    """A window of a configuration on a GPU."""
    running = Configuration(max_batch_size=float(batch))
    window = replace(measurement(p95, running=running), gpu=gpu, gpu_memory=2.0**30, gpu_power=70.0)
    return Swept(running, window)


def test_tuning_is_compared_with_the_grid() -> None:
    """The p95 with the grid's best; the GPU use saved, too; what breaks the SLO is no least use."""
    proof = Proof(
        rate=100.0,
        slo=0.020,
        grid=[swept(0.010, 0.8, 4), swept(0.018, 0.5, 16), swept(0.030, 0.2, 32)],
        tuned={"latency": swept(0.011, 0.8, 8), "gpu": swept(0.019, 0.4, 16)},
    )
    experiment = quick(GpuProof)

    found = {row.id: row.measured for row in experiment.rows({None: [proof]})}

    assert found["tuned for latency: p95 over the grid's best"] == 1.1
    assert found["tuned for gpu: GPU use saved against the best p95"] == 50.0
    assert found["grid, least GPU use within the SLO: GPU use"] == 50.0
    assert found["grid, best p95: GPU memory"] == 1024.0
    assert json.loads(json.dumps(experiment.details({None: [proof]})))["grid"][2]["max_batch_size"] == 32

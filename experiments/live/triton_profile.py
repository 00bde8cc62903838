"""l(b) from Triton's statistics under open-loop load, against closed-loop measurements of each batch size."""

from __future__ import annotations

from queue import Queue
from statistics import median
from urllib.parse import urlsplit

import numpy as np

from tuner.experiments.frame.catalogue import Options
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.live.testbed import triton
from tuner.knobs import Configuration
from tuner.profiler.attachment import Attachment

__all__ = ["run"]

SIZES = (1, 2, 4, 8)
RATE = 300.0
ROUNDS = 7
"""How often each size is measured in closed loop; the median counts."""


def run(options: Options) -> Result:
    """Compare the fitted line with groups of b requests sent one after the other."""
    errors: dict[int, list[float]] = {b: [] for b in SIZES}
    fitted: dict[int, list[float]] = {b: [] for b in SIZES}
    closed: dict[int, list[float]] = {b: [] for b in SIZES}
    residuals = []
    for seed in range(options.seeds):
        with triton(RATE, seed=seed) as attachment:
            attachment.backend.apply(Configuration(max_batch_size=32, max_queue_delay=0.01, instances=1))
            measurement = attachment.profiler.measure(3.0 if options.quick else 20.0, settle=2.0)
            assert measurement.profile is not None, "batches were executed"
            residuals.append(measurement.profile.residual * 1e3)
            attachment.set_rate(0.1)
            attachment.clock.sleep(1.0)
            # In turns: the machine's speed drifts, and must not be taken for the effect of a size.
            rounds = [
                {size: _closed_loop(attachment, size, 20 if options.quick else 30) for size in SIZES}
                for _ in range(1 if options.quick else ROUNDS)
            ]
            for size in SIZES:
                latency = median(seconds[size] for seconds in rounds)
                closed[size].append(latency * 1e3)
                fitted[size].append(measurement.profile.latency(size) * 1e3)
                errors[size].append(abs(measurement.profile.latency(size) / latency - 1) * 100)
            options.report(
                f"seed {seed}: " + ", ".join(f"l({b}) off by {errors[b][-1]:.1f} %" for b in SIZES)
            )
    rows: list[Row] = []
    for size in SIZES:
        rows += [
            row(f"l({size}) error", errors[size], unit="%", published=10.0, note="target: at most"),
            row(f"l({size}) from statistics", fitted[size], unit="ms"),
            row(f"l({size}) closed loop", closed[size], unit="ms"),
        ]
    return Result(
        experiment="triton-profile",
        seeds=options.seeds,
        configuration={"rate": RATE, "max_batch_size": 32, "max_queue_delay": 0.01, "rounds": ROUNDS},
        rows=[*rows, row("residual", residuals, unit="ms")],
    )


def _closed_loop(attachment: Attachment, size: int, count: int) -> float:
    """Send ``size`` requests together and wait for all; return the mean execution time of such a batch, s.

    The delay lets each group become one batch. A single request of ``size`` rows would not do: the backend
    takes in and answers every request of a batch for itself, and that is part of l(b).
    """
    from tritonclient.grpc import InferenceServerClient, InferInput

    model = attachment.description.model
    tensor = InferInput("input", [1, 256], "FP32")
    tensor.set_data_from_numpy(np.random.default_rng(0).standard_normal((1, 256), dtype=np.float32))
    before = attachment.backend.counters()
    with InferenceServerClient(urlsplit(attachment.description.target).netloc) as client:
        for _ in range(count):
            answers: Queue[object] = Queue()
            for _ in range(size):
                client.async_infer(
                    model, [tensor], lambda result, error, put=answers.put: put(error or result)
                )
            for _ in range(size):
                answers.get(timeout=10)
    after = attachment.backend.counters()
    executed = _at(after.batch_counts, size) - _at(before.batch_counts, size)
    return float((_at(after.batch_seconds, size) - _at(before.batch_seconds, size)) / executed)


def _at(values: np.ndarray, index: int) -> float:
    return float(values[index]) if index < values.size else 0.0

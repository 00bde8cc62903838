"""l(b) from Triton's statistics under open-loop load, against closed-loop measurements of each batch size."""

from __future__ import annotations

from collections.abc import Iterator
from queue import Queue
from statistics import median
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np

from tuner.experiments.frame.experiment import Answers, OneTaskExperiment, Scaled, experiment
from tuner.experiments.frame.result import Row, row
from tuner.experiments.live.testbed import triton
from tuner.knobs import Configuration
from tuner.profiler.attachment import Attachment

__all__ = ["BatchLatency"]

SIZES = (1, 2, 4, 8)
RATE = 300.0
ROUNDS = 7
"""How often each size is measured in closed loop; the median counts."""


class SizeLatencies(NamedTuple):
    """l(b) of one server by batch size, ms: fitted to its statistics, and measured in closed loop."""

    fitted: dict[int, float]
    closed: dict[int, float]
    residual: float
    """Of the fitted line, ms."""

    def error(self, size: int) -> float:
        """How far the line is off, %."""
        return abs(self.fitted[size] / self.closed[size] - 1) * 100


@experiment(
    name="triton-profile",
    title="l(b) from statistics against a closed-loop measurement",
    minutes=2,
    live=True,
)
class BatchLatency(OneTaskExperiment[SizeLatencies]):
    """Compares the fitted line with groups of b requests sent one after the other."""

    seconds = Scaled(20.0, quick=3.0)
    groups = Scaled(30, quick=20)
    rounds = Scaled(ROUNDS, quick=1)

    def measure(self, _: None, seed: int) -> SizeLatencies:
        with triton(RATE, seed=seed) as attachment:
            attachment.backend.apply(Configuration(max_batch_size=32, max_queue_delay=0.01, instances=1))
            profile = attachment.profiler.measure(self.seconds, settle=2.0).profile
            assert profile is not None, "batches were executed"
            attachment.set_rate(0.1)
            attachment.clock.sleep(1.0)
            # In turns: the machine's speed drifts, and must not be taken for the effect of a size.
            rounds = [
                {size: _closed_loop(attachment, size, self.groups) for size in SIZES}
                for _ in range(self.rounds)
            ]
        found = SizeLatencies(
            fitted={size: profile.latency(size) * 1e3 for size in SIZES},
            closed={size: median(seconds[size] for seconds in rounds) * 1e3 for size in SIZES},
            residual=profile.residual * 1e3,
        )
        self.report(f"seed {seed}: " + ", ".join(f"l({b}) off by {found.error(b):.1f} %" for b in SIZES))
        return found

    def rows(self, found: Answers[None, SizeLatencies]) -> Iterator[Row]:
        runs = found[None]
        for size in SIZES:
            errors = [each.error(size) for each in runs]
            yield row(f"l({size}) error", errors, unit="%", published=10.0, note="target: at most")
            yield row(f"l({size}) from statistics", [each.fitted[size] for each in runs], unit="ms")
            yield row(f"l({size}) closed loop", [each.closed[size] for each in runs], unit="ms")
        yield row("residual", [each.residual for each in runs], unit="ms")

    def configuration(self) -> dict[str, Any]:
        return {"rate": RATE, "max_batch_size": 32, "max_queue_delay": 0.01, "rounds": ROUNDS}


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

"""Fifty live reconfigurations under load: how many requests fail, and what the worst waits for."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tuner.experiments.frame.experiment import Answers, OneTaskExperiment, Scaled, experiment
from tuner.experiments.frame.result import Row, row
from tuner.experiments.live.testbed import distinct, tfserving, triton
from tuner.profiler.attachment import Attachment

__all__ = ["Reconfiguration", "TFServingReconfiguration", "TritonReconfiguration"]


class Changes(NamedTuple):
    """What many changes of one server came to."""

    failed: float
    sent: float
    """Requests."""
    change: list[float]
    """How long each change took, s."""
    worst: list[float]
    """The worst latency from each change to a second after it, s."""


class Reconfiguration(OneTaskExperiment[Changes]):
    """Changes a server's configuration at random under load, and counts."""

    rate: ClassVar[float]
    """Requests/s."""
    changes = Scaled(50, quick=5)

    @abstractmethod
    def bench(self, seed: int) -> AbstractContextManager[Attachment]:
        """Start a fresh server under the load."""

    def measure(self, _: None, seed: int) -> Changes:
        """Change a fresh server many times."""
        generator = np.random.default_rng(seed)
        change: list[float] = []
        worst = []
        with self.bench(seed) as attachment:
            # Without batching the server cannot serve the load: that would measure overload.
            able = [c for c in distinct(attachment) if c["max_batch_size"] >= 4]
            while len(change) < self.changes:
                configuration = able[int(generator.integers(len(able)))]
                begin = attachment.clock.now()
                report = attachment.backend.apply(configuration)
                if not report.changed:
                    continue
                attachment.clock.sleep(1.0)
                assert attachment.load is not None, "the testbed sends a load of its own"
                sample = attachment.load.sample(begin, begin + report.seconds + 1.0)
                change.append(report.seconds)
                worst.append(float(np.nanmax(sample.latency)))
                text = attachment.space.format(configuration)
                self.report(f"{len(change)}/{self.changes}  {text}  {report.seconds * 1e3:.0f} ms")
            attachment.clock.sleep(2.0)
            failed, sent = attachment.request_totals(0, 0)
        return Changes(float(failed), float(sent), change, worst)

    def rows(self, found: Answers[None, Changes]) -> Iterator[Row]:
        """Return failures and times."""
        runs = found[None]
        note = f"in {self.changes} reconfigurations"
        yield row("failed requests", [each.failed for each in runs], published=0.0, note=note)
        yield row("requests sent", [each.sent for each in runs])
        yield row("time of a change", [s * 1e3 for each in runs for s in each.change], unit="ms")
        worst = [s * 1e3 for each in runs for s in each.worst]
        yield row("worst latency from a change to a second after it", worst, unit="ms")

    def configuration(self) -> dict[str, Any]:
        """Return the load and the changes."""
        return {"rate": self.rate, "changes": self.changes}


@experiment(
    name="triton-reconfigure",
    title="50 live reconfigurations under 200 requests/s: failed requests",
    minutes=3,
    live=True,
)
class TritonReconfiguration(Reconfiguration):
    """An embedded Triton."""

    rate = 200.0

    def bench(self, seed: int) -> AbstractContextManager[Attachment]:
        return triton(self.rate, seed=seed, quick=self.options.quick)


@experiment(
    name="tfserving-reconfigure",
    title="50 live reconfigurations of TensorFlow Serving under 80 requests/s: failed requests",
    minutes=3,
    live=True,
)
class TFServingReconfiguration(Reconfiguration):
    """An embedded TensorFlow Serving, or its stand-in."""

    rate = 80.0

    def bench(self, seed: int) -> AbstractContextManager[Attachment]:
        return tfserving(self.rate, seed=seed)

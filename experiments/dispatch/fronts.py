"""What a small request costs in a server that forms batches: the dispatcher, Ray Serve, MLServer.

All have the same model, which gives its input back, the same largest batch and the same clients, and speak
the same protocol. What is counted is the time that all processes of a server are on a core, its own helpers
included, so that clients and other work on the machine make no difference. Ray Serve hands each request from
a process that talks with clients to one that has the model; the other two have it in their one process.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tuner.errors import AdapterError
from tuner.experiments.dispatch.rivals.apart import CoreRate, measured
from tuner.experiments.dispatch.rivals.catalogue import BATCH, SYSTEMS, WAIT
from tuner.experiments.frame.experiment import Answers, Experiment, Scaled, experiment
from tuner.experiments.frame.result import Row, row

__all__ = ["DispatchFronts"]

OURS = next(iter(SYSTEMS))


@experiment(
    name="dispatch-fronts",
    title="Small requests per second and core: the dispatcher beside Ray Serve and MLServer",
    minutes=5,
    live=True,
)
class DispatchFronts(Experiment[str, CoreRate | str]):
    """Measures every server in turn. A rival that cannot be run has its reason in place of a figure."""

    requests = Scaled(12_000, quick=320)

    def tasks(self) -> tuple[str, ...]:
        return tuple(SYSTEMS)

    def measure(self, task: str, seed: int) -> CoreRate | str:  # noqa: ARG002 - the requests are equal
        try:
            return measured(task, self.requests)
        except AdapterError as error:
            if task == OURS:
                raise
            self.report(str(error))
            return str(error)

    def rows(self, found: Answers[str, CoreRate | str]) -> Iterator[Row]:
        ours = _rates(found[OURS])
        for name, answers in found.items():
            rates = _rates(answers)
            if not rates:
                yield Row(id=name, measured=None, unit="requests/s per core", note=str(answers[0]))
                continue
            yield row(name, [one.rate for one in rates], unit="requests/s per core")
            yield row(f"{name}: p50 of 32 callers", [1e3 * one.latency for one in rates], unit="ms")
            if name != OURS:
                ratios = [mine.rate / other.rate for mine, other in zip(ours, rates, strict=False)]
                yield row(f"{OURS} over {name}", ratios, unit="ratio")

    def configuration(self) -> dict[str, Any]:
        return {
            "requests": self.requests,
            "largest batch": BATCH,
            "wait for others": f"{WAIT * 1e3:g} ms",
            "rivals": [one for system in SYSTEMS.values() for one in system.requirements],
        }


def _rates(answers: list[CoreRate | str]) -> list[CoreRate]:
    return [one for one in answers if isinstance(one, CoreRate)]

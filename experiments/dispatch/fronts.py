"""What a small request costs in a server that forms batches: the dispatcher, Ray Serve, MLServer.

All have the same small network, the same largest batch and wait, and the same clients, which speak KServe's
protocol over gRPC. What is counted is the time that all processes of a server are on a core, its helpers
included, so that clients and other work on the machine make little difference. The dispatcher stands before a
Triton, whose time counts, too; and, as MLServer, with the model in its own process.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tuner.errors import AdapterError
from tuner.experiments.dispatch.rivals.apart import RequestCost, measured
from tuner.experiments.dispatch.rivals.catalogue import BATCH, SYSTEMS, WAIT
from tuner.experiments.frame.experiment import Answers, Experiment, Scaled, experiment
from tuner.experiments.frame.result import Row, row

__all__ = ["DispatchFronts"]

OURS = tuple(name for name, system in SYSTEMS.items() if not system.requirements)
PER_CORE = "requests/s per core"


@experiment(
    name="dispatch-fronts",
    title="Small requests per second and core: the dispatcher beside Ray Serve and MLServer",
    minutes=5,
    live=True,
    shown=26,
)
class DispatchFronts(Experiment[str, RequestCost | str]):
    """Measures every server in turn. A rival that cannot be run has its reason in place of a figure."""

    requests = Scaled(6_000, quick=320)
    light = Scaled(6.0, quick=1.0)
    """s"""

    def tasks(self) -> tuple[str, ...]:
        return tuple(SYSTEMS)

    def measure(self, task: str, seed: int) -> RequestCost | str:  # noqa: ARG002 - the requests are equal
        try:
            return measured(task, self.requests, self.light)
        except AdapterError as error:
            if task in OURS:
                raise
            self.report(str(error))
            return str(error)

    def rows(self, found: Answers[str, RequestCost | str]) -> Iterator[Row]:
        costs = {name: _costs(answers) for name, answers in found.items()}
        for name, answers in found.items():
            if not costs[name]:
                yield Row(id=name, measured=None, unit=PER_CORE, note=str(answers[0]))
                continue
            yield row(name, [one.rate for one in costs[name]], unit=PER_CORE)
            yield row(f"{name}: p50 of a light load", [1e3 * one.latency for one in costs[name]], unit="ms")
            yield row(f"{name}: without requests", [one.idle for one in costs[name]], unit="cores")
        rivals = {name: some for name, some in costs.items() if name not in OURS and some}
        for ours in OURS:
            for rival, others in rivals.items():
                ratios = [mine.rate / other.rate for mine, other in zip(costs[ours], others, strict=False)]
                yield row(f"{ours} over {rival}", ratios, published=1.0, note="target: above")

    def configuration(self) -> dict[str, Any]:
        return {
            "requests": self.requests,
            "seconds of light load": self.light,
            "largest batch": BATCH,
            "wait for others": f"{WAIT * 1e3:g} ms",
            "rivals": sorted({one for system in SYSTEMS.values() for one in system.requirements}),
        }


def _costs(answers: list[RequestCost | str]) -> list[RequestCost]:
    return [one for one in answers if isinstance(one, RequestCost)]

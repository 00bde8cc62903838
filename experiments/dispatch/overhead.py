"""What the dispatcher adds to the latency of a request, beside asking a Triton directly."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np

from tuner.experiments.dispatch.bench import MODELS, QUICK, CheckingClients, arrivals, dispatching, servers
from tuner.experiments.frame.experiment import Answers, OneTaskExperiment, Scaled, experiment
from tuner.experiments.frame.result import Row, row

__all__ = ["DispatchOverhead"]

SMALL = next(one for one in MODELS if one.name == "small")
WAYS: dict[str, dict[str, Any]] = {
    "grpcio": {},
    "native, HTTP": QUICK,
    "native, HTTP, 2 instances": {**QUICK, "instances": 2},
}
"""What the dispatcher speaks with its clients, gRPC of its own or in Rust, and with Triton, gRPC or HTTP; and
how many batches are with Triton at a time: with two, the next is on its way while one is executed."""
RATE = 500.0
"""Requests/s."""


@experiment(
    name="dispatch-overhead",
    title="What the dispatcher adds to the latency of a request at 500 requests/s",
    minutes=10,
    live=True,
)
class DispatchOverhead(OneTaskExperiment[dict[str, list[float]]]):
    """Sends the same requests directly and through the dispatcher, which waits for no batch, in turns."""

    seconds = Scaled(20.0, quick=2.0)
    rounds = Scaled(3, quick=1)

    def measure(self, task: None, seed: int) -> dict[str, list[float]]:  # noqa: ARG002 - there is one
        found: dict[str, list[float]] = {"direct": [], **{name: [] for name in WAYS}}
        settings: dict[str, Any] = {"options": "{deferral: 0}"}
        with ExitStack() as stack:
            (triton,) = stack.enter_context(servers(1, [SMALL]))
            direct = f"127.0.0.1:{triton.ports.grpc}"
            ways = {"direct": CheckingClients([direct], [SMALL])}
            for name, way in WAYS.items():
                dispatcher = stack.enter_context(dispatching([triton], [SMALL], **way, **settings))
                ways[name] = CheckingClients([dispatcher.address], [SMALL])
            for clients in ways.values():
                clients.learn(direct)
                clients.offer(arrivals({"small": 100.0}, 1.0, seed))
            for number in range(self.rounds):
                for name, clients in ways.items():
                    answers = clients.offer(arrivals({"small": RATE}, self.seconds, seed + number))
                    latencies = [one.latency for one in answers if one.status == "OK"]
                    found[name].append(float(np.median(latencies)))
        return found

    def rows(self, found: Answers[None, dict[str, list[float]]]) -> Iterator[Row]:
        runs = found[None]
        for name in runs[0]:
            yield row(f"p50 {name}", [1e3 * float(np.mean(run[name])) for run in runs], unit="ms")
        for name in WAYS:
            added = [1e3 * float(np.mean(np.subtract(run[name], run["direct"]))) for run in runs]
            yield row(f"p50 added by {name}", added, unit="ms", published=1.5, note="target: at most")

    def configuration(self) -> dict[str, Any]:
        return {"rate": RATE, "seconds": self.seconds, "rounds": self.rounds}

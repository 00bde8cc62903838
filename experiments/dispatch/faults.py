"""A million requests through the dispatcher while its servers are killed: each is answered once, and rightly.

The clients know the right answer to each of their inputs, so an answer that went to another caller shows. A
server is killed and restarted ten times; the dispatcher has to take it out, send its requests elsewhere, and
bring it back.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from tuner.adapters.triton.embedded import EmbeddedTriton
from tuner.experiments.dispatch.bench import MODELS, QUICK, CheckingClients, arrivals, dispatching, servers
from tuner.experiments.frame.experiment import Answers, OneTaskExperiment, Scaled, experiment
from tuner.experiments.frame.result import Row, row

__all__ = ["DispatchFaults"]

SLO_MS = 500
"""Long enough for a second try on the other server."""
SMALL = replace(next(one for one in MODELS if one.name == "small"), slo=SLO_MS / 1e3)
RATE = 1000.0
"""Requests/s."""
PIECE = 20.0
"""s of load that the clients hold in memory at a time."""


class Survived(NamedTuple):
    """What came of all requests."""

    sent: int
    statuses: dict[str, int]
    wrong: int
    kills: int


@experiment(
    name="dispatch-faults",
    title="A million requests through the dispatcher while servers are killed and restarted",
    minutes=20,
    live=True,
    repeated=False,
)
class DispatchFaults(OneTaskExperiment[Survived]):
    """Offers a steady load, and kills one of two servers again and again."""

    requests = Scaled(1_000_000, quick=3_000)
    kills = Scaled(10, quick=1)
    rate = Scaled(RATE, quick=300.0)

    def measure(self, task: None, seed: int) -> Survived:  # noqa: ARG002 - there is one
        with servers(2, [SMALL]) as tritons, dispatching(tritons, [SMALL], **QUICK) as dispatcher:
            clients = CheckingClients([dispatcher.address], [SMALL])
            clients.learn(f"127.0.0.1:{tritons[0].ports.grpc}")
            return self._survive(clients, tritons, seed)

    def _survive(self, clients: CheckingClients, tritons: list[EmbeddedTriton], seed: int) -> Survived:
        statuses: Counter[str] = Counter()
        seconds = self.requests / self.rate
        sent = wrong = 0
        killer = threading.Thread(target=self._kill, args=(tritons, seconds))
        killer.start()
        while sent < self.requests:
            left = (self.requests - sent) / self.rate
            # A second more: no arrival might fall into the time that the last few need on average.
            offered = arrivals({"small": self.rate}, min(PIECE, left + 1.0), seed + sent)
            found = clients.offer(offered[: self.requests - sent], seed=seed + sent)
            statuses.update(one.status for one in found)
            wrong += sum(not one.right for one in found)
            sent += len(found)
            self.report(f"{sent} sent, {wrong} wrong, {dict(statuses)}")
        killer.join()
        return Survived(sent, dict(statuses), wrong, self.kills)

    def _kill(self, tritons: list[EmbeddedTriton], seconds: float) -> None:
        """Kill and restart servers in turns, evenly over the run."""
        pause = threading.Event()
        for number in range(self.kills):
            pause.wait(seconds / (self.kills + 1) / 2)
            tritons[number % len(tritons)].kill()
            pause.wait(seconds / (self.kills + 1) / 2)
            tritons[number % len(tritons)].restart()

    def rows(self, found: Answers[None, Survived]) -> Iterator[Row]:
        (survived,) = found[None]
        answered = survived.statuses.get("OK", 0)
        said = {"OK", "DEADLINE_EXCEEDED", "UNAVAILABLE", "RESOURCE_EXHAUSTED"}
        lost = sum(count for status, count in survived.statuses.items() if status not in said)
        yield row("requests sent", [float(survived.sent)], published=float(self.requests), note="target")
        yield row("server killed and restarted", [float(survived.kills)], published=10.0, note="target")
        yield row("answered", [100 * answered / survived.sent], unit="%")
        yield row("answers of another request", [float(survived.wrong)], published=0.0)
        yield row("without an answer or a clear status", [float(lost)], published=0.0)

    def configuration(self) -> dict[str, Any]:
        return {"rate": self.rate, "slo_ms": SLO_MS, "requests": self.requests, "kills": self.kills, **QUICK}

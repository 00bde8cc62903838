"""The live dispatcher beside the simulator: the same requests at the same times, under the same policy.

From the first half of the dispatcher's event log come the profiles that it learned and how much executions
differ from them; the second half is simulated with its own arrivals, and compared with what really happened.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tuner.cluster.requests import Chunk
from tuner.cluster.simulation import Interval, Simulation
from tuner.dispatch.journal import Journal, Segment
from tuner.experiments.dispatch.bench import MODELS, CheckingClients, arrivals, dispatching, rates_of, servers
from tuner.experiments.frame.experiment import Answers, Experiment, Scaled, experiment
from tuner.experiments.frame.result import Row, row
from tuner.scheduling.catalogue import build_policy
from tuner.scheduling.cluster import ClusterSpec
from tuner.scheduling.log import ARRIVE, FINISH, SEND

__all__ = ["DispatchSimulated", "SecondHalf", "executions", "sent_mean_batch", "simulated"]

POLICY = "symphony"


class SecondHalf(NamedTuple):
    """What came of the requests of the second half of a run."""

    goodput: float
    """Requests/s that were answered within their SLO."""
    mean_batch: float


@dataclass(frozen=True)
class RecordedLoad:
    """The requests and beliefs of a log, as a scenario that can be simulated."""

    segment: Segment
    spec: ClusterSpec
    arrivals: np.ndarray  # (n,) ENTRY
    seed: int = 0
    noise: float = 0.0

    @property
    def interval(self) -> Interval:
        """All requests count."""
        return Interval(-np.inf, np.inf, np.inf)

    def cluster_spec(self) -> ClusterSpec:
        """Return the sessions, with the profiles that the dispatcher had learned."""
        return self.spec

    def make_policy(self) -> Any:
        """Return the dispatcher's policy at time 0."""
        return build_policy(self.segment.policy, self.spec, self.segment.options)

    def make_requests(self) -> RecordedLoad:
        """Return the arrivals: this."""
        return self

    def next_chunk(self) -> Chunk:
        """Return all arrivals."""
        times = np.ascontiguousarray(self.arrivals["time"] - self.arrivals["time"][0])
        session = np.ascontiguousarray(self.arrivals["session"])
        return Chunk(times, session, np.zeros(times.size, np.int64), np.inf)

    def draw_network(self, *_: object) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the delays that the dispatcher had measured; what it sends is part of an execution."""
        return np.zeros(1), np.zeros(1), np.full(1, self.spec.delays.response)


@experiment(
    name="dispatch-simulated",
    title="The dispatcher before two Tritons, and the simulator with the same requests",
    minutes=6,
    live=True,
)
class DispatchSimulated(Experiment[float, dict[str, SecondHalf]]):
    """Serves each load live, then simulates the second half of it from what the first half taught."""

    seconds = Scaled(60.0, quick=8.0)
    rates = Scaled((200.0, 400.0), quick=(200.0,))
    """Requests/s of all models."""

    def tasks(self) -> tuple[float, ...]:
        return self.rates

    def measure(self, rate: float, seed: int) -> dict[str, SecondHalf]:
        rates = rates_of(MODELS, rate)
        with tempfile.TemporaryDirectory(prefix="servetune-log-") as folder:
            log = Path(folder) / "events.npz"
            with servers() as tritons, dispatching(tritons, log=log, policy=POLICY) as dispatcher:
                clients = CheckingClients([dispatcher.address])
                clients.learn(f"127.0.0.1:{tritons[0].ports.grpc}")
                offered = arrivals(rates, self.seconds, seed)
                answers = clients.offer(offered, seed=seed)
            segment = max(Journal.load(log).segments, key=lambda one: one.log.size)
        slos = {one.name: one.slo for one in MODELS}
        good = sum(
            answer.status == "OK" and answer.latency <= slos[answer.model]
            for (when, _), answer in zip(offered, answers, strict=True)
            if when >= self.seconds / 2
        )
        return {
            "live": SecondHalf(2 * good / self.seconds, sent_mean_batch(segment)),
            "simulated": simulated(segment, seed),
        }

    def rows(self, found: Answers[float, dict[str, SecondHalf]]) -> Iterator[Row]:
        for rate, runs in found.items():
            for part, unit in (("goodput", "r/s"), ("mean_batch", "")):
                name = f"{rate:g} requests/s: {part.replace('_', ' ')}"
                values = {way: [getattr(run[way], part) for run in runs] for way in ("live", "simulated")}
                for way, ones in values.items():
                    yield row(f"{name}, {way}", ones, unit=unit)
                ratios = np.divide(values["simulated"], values["live"]).tolist()
                yield row(f"{name}, simulated over live", ratios, published=1.0, note="target: 0.9 to 1.1")

    def configuration(self) -> dict[str, Any]:
        return {"policy": POLICY, "seconds": self.seconds}


def _halves(segment: Segment) -> tuple[np.ndarray, np.ndarray]:
    """Return the entries of a log before and from the middle of its requests.   # (n,), (m,) ENTRY."""
    entries = segment.log.entries
    times = entries["time"][entries["kind"] == ARRIVE]
    middle = (times[0] + times[-1]) / 2
    return entries[entries["time"] < middle], entries[entries["time"] >= middle]


def executions(entries: np.ndarray) -> np.ndarray:
    """Return for each batch session, accelerator, size and how long it executed, s.   # (n, 4).

    Accelerators execute their batches in the order in which they were sent.
    """
    found, waiting, free = [], dict[int, list[Any]](), dict[int, float]()
    for entry in entries[np.isin(entries["kind"], (SEND, FINISH))]:
        accelerator = int(entry["accelerator"])
        if entry["kind"] == SEND:
            waiting.setdefault(accelerator, []).append(entry)
        elif waiting.get(accelerator):
            sent = waiting[accelerator].pop(0)
            began = max(float(sent["time"]), free.get(accelerator, -np.inf))
            found.append((sent["session"], accelerator, sent["items"], entry["time"] - began))
            free[accelerator] = float(entry["time"])
    return np.array(found, float).reshape(-1, 4)


def sent_mean_batch(segment: Segment) -> float:
    """Return the mean size of the batches in the second half of a log."""
    _, second = _halves(segment)
    return float(second["items"][second["kind"] == SEND].mean())


def simulated(segment: Segment, seed: int) -> SecondHalf:
    """Simulate the second half of a log from what its first half taught."""
    first, second = _halves(segment)
    changes = [change for change in segment.changes if change.place <= first.size]
    sessions, delays = segment.spec.sessions, segment.spec.delays
    if changes:
        sessions = [
            replace(one, latency=table) for one, table in zip(sessions, changes[-1].tables, strict=True)
        ]
        delays = changes[-1].delays
    spec = replace(segment.spec, sessions=sessions, delays=delays, busy={})
    factors = np.array(
        [
            seconds / sessions[int(session)].latency[spec.kinds[int(accelerator)], int(size)]
            for session, accelerator, size, seconds in executions(first)
        ]
    )
    load = RecordedLoad(segment, spec, second[second["kind"] == ARRIVE], seed)
    simulation = Simulation(load, factor=lambda generator, count: generator.choice(factors, count))
    lasts = float(second["time"][-1] - second["time"][0])
    simulation.advance(lasts)
    simulation.drain()
    outcomes = simulation.outcome().sessions
    good = sum(one.good for one in outcomes)
    sent = sum(one.good + one.late for one in outcomes)
    return SecondHalf(good / lasts, sent / sum(int(one.batches.sum()) for one in outcomes))
